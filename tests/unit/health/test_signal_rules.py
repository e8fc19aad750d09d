"""Groups without variance: when they are told of, and what is blamed."""

from __future__ import annotations

import pytest

from unit.health.histories import CORRECT, CUT, ZERO_STD, findings, flat, told

WINDOW = "no_signal.window=3"


def test_a_full_window_of_dead_groups_is_told_when_it_is_full() -> None:
    """0.5 0.5 0.95 0.95 0.95: means of three are 0.65 at step 3, 0.8 at step 4, 0.95 at step 5."""
    assert told({ZERO_STD: [0.5, 0.5, 0.95, 0.95, 0.95, 0.95]}, WINDOW) == [("warning", "no_signal", 5, 3)]


def test_a_batch_just_below_the_threshold_hides_nothing() -> None:
    """(0.85 + 0.95 + 0.95) / 3 = 0.917; at 0.9 or more since step 2."""
    assert told({ZERO_STD: [0.85, 0.95, 0.95]}, WINDOW) == [("warning", "no_signal", 3, 2)]


def test_one_live_batch_in_each_window_is_enough() -> None:
    """(1 + 1 + 0.5) / 3 = 0.83."""
    assert told({ZERO_STD: [1, 1, 0.5, 1, 1, 0.5, 1, 1]}, WINDOW) == []


def test_the_threshold_itself_counts() -> None:
    assert told({ZERO_STD: [0.9]}, "no_signal.window=1") == [("warning", "no_signal", 1, 1)]
    assert told({ZERO_STD: [0.89]}, "no_signal.window=1") == []


def test_steps_that_generate_nothing_are_left_out_of_the_window() -> None:
    """Batches at steps 1, 3 and 5: the third one is step 5."""
    assert told({ZERO_STD: [1.0, None, 1.0, None, 1.0, None]}, WINDOW) == [("warning", "no_signal", 5, 1)]
    assert told({ZERO_STD: [1.0, None, 1.0, None]}, WINDOW) == []


@pytest.mark.parametrize(
    ("correct", "cut", "cause", "advice"),
    [
        ([0.95, 0.97, 0.96], 0.0, "mean correctness 0.960): the prompts are too easy", "raise dataset.max_operand"),
        ([0.03, 0.00, 0.00], 0.0, "mean correctness 0.010): the prompts are too hard", "lower dataset.max_operand"),
        ([0.03, 0.00, 0.00], 0.9, "90% of the completions are cut off", "raise trainer.max_completion_length (now 20)"),
        ([0.50, 0.50, 0.50], 0.0, "some prompts are too easy and the others too hard", "algorithm.dynamic_sampling"),
        # The mean of the window, 0.2, is still hard; 0.6 at step 1 was not.
        ([0.60, 0.00, 0.00], 0.0, "no longer solves what it solved at step 1 (0.600)", "lower trainer.learning_rate"),
    ],
)
def test_cause_is_told_by_the_primary_component(correct: list[float], cut: float, cause: str, advice: str) -> None:
    (finding,) = findings({ZERO_STD: flat(1.0, 3), CORRECT: correct, CUT: flat(cut, 3)}, WINDOW)
    assert "100% of the groups had equal rewards over 3 batches" in finding.text
    assert cause in finding.text
    assert advice in finding.verdict.advice


def test_without_a_primary_component_nothing_is_said_about_it() -> None:
    (finding,) = findings({ZERO_STD: [1.0]}, "no_signal.window=1")
    assert "no correctness was measured" in finding.text


def test_own_data_are_named_by_their_file() -> None:
    words = ("no_signal.window=1", "dataset=jsonl", "dataset.path=rows.jsonl")
    (finding,) = findings({ZERO_STD: [1.0], CORRECT: [0.0]}, *words)
    assert finding.verdict.advice.startswith("give easier rows in dataset.path")


def test_where_the_batch_is_one_group_the_batch_is_blamed() -> None:
    (finding,) = findings({ZERO_STD: [1.0]}, "no_signal.window=1", "algorithm.scale_rewards=batch")
    assert finding.text.startswith("all rewards of the batch were equal over 1 batches")


# ------------------------------------------------------------------------------------------ dynamic sampling

FILLED, ACCEPTED = "train/dynamic_sampling/filled_groups", "train/dynamic_sampling/acceptance_rate"
FIRST_ROUND = "train/dynamic_sampling/rewards/correctness/mean"
DAPO = ("algorithm=dapo", "dynamic_sampling.window=2")


def test_batches_that_do_not_get_full_are_told() -> None:
    """Of 32 groups 4, 8 and 10: means of two are 6 (19 %) and 9 (28 %, above 25 %); 8 and 10 are at 25 % each."""
    curves = {FILLED: [4.0, 8.0, 10.0], ACCEPTED: flat(0.3, 3), FIRST_ROUND: flat(0.05, 3)}
    (finding,) = findings(curves, *DAPO)
    assert (finding.severity, finding.rule, finding.step, finding.verdict.since) == (
        "warning", "dynamic_sampling", 3, 2,
    )  # fmt: skip
    assert "28% of the groups of 2 batches do not vary, since the rounds ran out" in finding.text
    assert finding.verdict.advice.startswith("easier prompts")


def test_groups_that_are_thrown_away_are_told() -> None:
    """0.3 0.2 0.1 0.1: means of two are 0.25, 0.15 (step 3); below 0.2 since step 3."""
    curves = {FILLED: flat(0.0, 4), ACCEPTED: [0.3, 0.2, 0.1, 0.1]}
    assert told({**curves, FIRST_ROUND: flat(0.1, 4)}, *DAPO) == [("warning", "dynamic_sampling", 3, 3)]


def test_groups_that_are_thrown_away_because_the_task_is_learned_are_only_noted() -> None:
    curves = {FILLED: flat(0.0, 2), ACCEPTED: flat(0.1, 2), FIRST_ROUND: flat(0.95, 2)}
    assert told(curves, *DAPO) == [("info", "dynamic_sampling", 2, 1)]


def test_usual_dynamic_sampling_is_not_told() -> None:
    curves = {FILLED: flat(1.0, 9), ACCEPTED: flat(0.25, 9), FIRST_ROUND: flat(0.5, 9)}
    assert told(curves, *DAPO) == []
