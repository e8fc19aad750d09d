"""Completions that grow, are cut off, or shorten."""

from __future__ import annotations

from unit.health.histories import CORRECT, CUT, LENGTH, REWARD, findings, flat, told

EXPLOSION = ("length_explosion.window=3", "trainer.max_completion_length=100")


def test_length_that_doubles_without_correctness_is_told() -> None:
    """10 10 10 | 12 20 20: at step 6 the median of the last three is 20, twice that of the first; 20 since step 5."""
    curves = {LENGTH: [10, 10, 10, 12, 20, 20, 21], CORRECT: flat(0.3, 7)}
    (finding,) = findings(curves, *EXPLOSION)
    assert (finding.rule, finding.step, finding.verdict.since) == ("length_explosion", 6, 5)
    assert finding.text == "completions grew from 10 to 20 tokens, while mean correctness changed by +0.000"


def test_length_that_buys_correctness_is_not_told() -> None:
    """0.30 at first and 0.36 at the end: a rise of 0.06, above the 0.05 that excuse growth."""
    assert told({LENGTH: [10, 10, 10, 20, 20, 20], CORRECT: [0.3, 0.3, 0.3, 0.36, 0.36, 0.36]}, *EXPLOSION) == []


def test_growth_by_less_than_the_factor_far_from_the_limit_is_not_told() -> None:
    assert told({LENGTH: [10, 10, 10, 19, 19, 19], CORRECT: flat(0.3, 6)}, *EXPLOSION) == []


def test_growth_to_the_limit_is_told_though_it_is_no_doubling() -> None:
    """Limit 20: 16 is its 80 %, and 15 is 12 x 1.25; the median of steps 4 to 6 is 16."""
    curves = {LENGTH: [12, 12, 12, 16, 16, 17], CORRECT: flat(0.3, 6)}
    (finding,) = findings(curves, "length_explosion.window=3")
    assert (finding.rule, finding.step, finding.verdict.since) == ("length_explosion", 6, 4)
    assert "from 12 to 16 tokens (limit 20)" in finding.text


def test_length_that_was_near_the_limit_from_the_start_has_not_grown() -> None:
    """15 x 1.25 is 18.75."""
    assert told({LENGTH: [15, 15, 15, 17, 17, 17], CORRECT: flat(0.3, 6)}, "length_explosion.window=3") == []


def test_truncation_over_a_window_is_told_with_the_limit() -> None:
    """0.3 0.2 0.3 0.4: the first two in a row at 0.25 or more are steps 3 and 4."""
    (finding,) = findings({CUT: [0.3, 0.2, 0.3, 0.4]}, "truncation.window=2")
    assert (finding.rule, finding.step, finding.verdict.since) == ("truncation", 4, 3)
    assert finding.text == "30% or more of the completions hit the limit of 20 tokens over 2 batches"
    assert "raise trainer.max_completion_length (now 20)" in finding.verdict.advice


def test_truncation_that_comes_and_goes_is_not_told() -> None:
    assert told({CUT: [0.5, 0.0] * 10}, "truncation.window=2") == []


def test_with_dynamic_sampling_the_first_round_is_judged() -> None:
    """Curves of the kept groups vary by choice."""
    words = ("algorithm=dapo", "truncation.window=2")
    first_round = "train/dynamic_sampling/completion_length/truncated_fraction"
    assert told({CUT: flat(0.9, 3), first_round: flat(0.0, 3)}, *words) == []
    assert told({CUT: flat(0.0, 3), first_round: flat(0.9, 3)}, *words) == [("warning", "truncation", 2, 1)]


FALL = "length_and_reward_fall.window=2"


def test_length_and_reward_that_fall_together_are_told() -> None:
    """Lengths: best mean 10, so 7 is short; means of two: 8 at step 4, 6 at step 5. Reward: 0.5 to 0.4, a fifth."""
    curves = {LENGTH: [10, 10, 10, 6, 6], REWARD: [0.5, 0.5, 0.5, 0.4, 0.4]}
    (finding,) = findings(curves, FALL)
    assert (finding.rule, finding.step, finding.verdict.since) == ("length_and_reward_fall", 5, 4)
    assert "from 10.0 to 6.0 tokens while the reward fell from 0.500 to 0.400" in finding.text


def test_shorter_and_no_worse_is_not_told() -> None:
    """0.5 to 0.46 is 8 %, less than a tenth."""
    assert told({LENGTH: [10, 10, 10, 6, 6], REWARD: [0.5, 0.5, 0.5, 0.46, 0.46]}, FALL) == []


def test_worse_and_no_shorter_is_not_told() -> None:
    assert told({LENGTH: flat(10, 5), REWARD: [0.5, 0.5, 0.5, 0.4, 0.4]}, FALL) == []
