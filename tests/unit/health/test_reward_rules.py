"""Rewards that fall, that are hacked, that do not vary, that nobody can give."""

from __future__ import annotations

from typing import Any

from unit.health.histories import CORRECT, FORMAT, REWARD, findings, flat, told

COLLAPSE = "reward_collapse.window=2"
FALLING = [0.2, 0.6, 0.6, 0.5, 0.4, 0.4]


def test_reward_far_below_its_best_mean_is_told() -> None:
    """Means of two: 0.4 0.6 0.55 0.45 0.4; 0.6 less 30 % is 0.42, so step 6; values at most 0.42 since step 5."""
    (finding,) = findings({REWARD: FALLING}, COLLAPSE)
    assert (finding.rule, finding.step, finding.verdict.since) == ("reward_collapse", 6, 5)
    assert finding.text == "the mean reward fell from 0.600 (up to step 3) to 0.400 (means of 2 batches)"


def test_a_smaller_fall_is_not_told() -> None:
    assert told({REWARD: [0.2, 0.6, 0.6, 0.5, 0.45, 0.45]}, COLLAPSE) == []


def test_a_fall_from_next_to_nothing_is_not_told() -> None:
    """0.10 to 0.06 is 40 %, and 0.04 in all."""
    assert told({REWARD: [0.1, 0.1, 0.06, 0.06]}, COLLAPSE) == []


def test_a_fall_in_the_first_steps_is_measured_from_three_of_them() -> None:
    """0.6 0.6 0.6 0 0 ...: window 5; the best mean is 0.6 from step 3 on; at step 5 the mean is 0.36, below 0.42."""
    curves = {REWARD: [0.6, 0.6, 0.6, 0.0, 0.0, 0.0]}
    assert told(curves, "reward_collapse.window=5") == [("warning", "reward_collapse", 5, 4)]


def test_where_weights_move_the_primary_component_is_judged() -> None:
    fading = "+reward.components.format.schedule={kind: linear, start_factor: 1, end_factor: 0, end_step: 5}"
    assert told({REWARD: FALLING, CORRECT: flat(0.5, 6)}, COLLAPSE, fading) == []
    (finding,) = findings({REWARD: flat(0.5, 6), CORRECT: FALLING}, COLLAPSE, fading)
    assert finding.text.startswith("mean correctness fell from 0.600")


def test_with_dynamic_sampling_the_reward_of_kept_groups_says_nothing() -> None:
    words = ("algorithm=dapo", COLLAPSE)
    assert told({REWARD: FALLING, "train/dynamic_sampling/reward": flat(0.6, 6)}, *words) == []
    assert told({REWARD: flat(0.5, 6), "train/dynamic_sampling/reward": FALLING}, *words) == [
        ("warning", "reward_collapse", 6, 5)
    ]


# ------------------------------------------------------------------------------------------ format

HACKING = "format_hacking.window=2"
RISING = [0.2, 0.2, 0.25, 0.31, 0.31]


def test_format_that_rises_alone_is_told() -> None:
    """Means of two: 0.20 at first, 0.28 at step 4, 0.31 at step 5: a rise of 0.11; above 0.30 since step 4."""
    (finding,) = findings({FORMAT: RISING, CORRECT: flat(0.3, 5)}, HACKING)
    assert (finding.rule, finding.subject, finding.step, finding.verdict.since) == ("format_hacking", "format", 5, 4)
    assert finding.text == "format rose from 0.200 to 0.310 while correctness changed by +0.000"
    assert "reward.components.format.weight (now 0.1)" in finding.verdict.advice


def test_format_that_rises_with_correctness_is_not_told() -> None:
    """0.30 to 0.33: a rise of 0.03, above 0.02."""
    assert told({FORMAT: RISING, CORRECT: [0.3, 0.3, 0.33, 0.33, 0.33]}, HACKING) == []


def test_punishment_that_fades_is_no_hacking() -> None:
    curves = {"train/dynamic_sampling/rewards/overlong/mean": [-0.5, -0.5, 0.0, 0.0, 0.0],
              "train/dynamic_sampling/rewards/correctness/mean": flat(0.3, 5)}  # fmt: skip
    assert told(curves, "algorithm=dapo", HACKING) == []


# ------------------------------------------------------------------------------------------ constant components


def constant(component: str, value: float, *words: str, spread: float = 0.0) -> list[tuple[str, str, int, int]]:
    curves: dict[str, Any] = {
        f"train/rewards/{component}/mean": flat(value, 4), f"train/rewards/{component}/std": flat(spread, 4),
    }  # fmt: skip
    return told(curves, "constant_component.window=3", *words)


def test_component_that_pays_nobody_is_told() -> None:
    assert constant("format", 0.0) == [("warning", "constant_component", 3, 1)]


def test_component_at_its_best_is_only_noted() -> None:
    """1 for a form, 0 for a punishment."""
    assert constant("format", 1.0) == [("info", "constant_component", 3, 1)]
    assert constant("overlong", 0.0, "algorithm=dapo") == [("info", "constant_component", 3, 1)]
    assert constant("overlong", -1.0, "algorithm=dapo") == [("warning", "constant_component", 3, 1)]


def test_nobody_knows_the_best_of_a_function_of_the_users() -> None:
    mine = "+reward.components.mine={kind: python, function: 'm:f'}"
    assert constant("mine", 1.0, mine) == [("warning", "constant_component", 3, 1)]


def test_component_that_varies_or_weighs_nothing_is_not_told() -> None:
    assert constant("format", 0.5, spread=0.1) == []
    assert constant("format", 0.0, "reward.components.format.weight=0") == []


def test_component_that_is_equal_within_batches_and_not_between_them_is_not_constant() -> None:
    curves = {FORMAT: [0.0, 1.0, 0.0, 1.0], "train/rewards/format/std": flat(0.0, 4)}
    assert told(curves, "constant_component.window=3") == []


# ------------------------------------------------------------------------------------------ the checker


def test_share_of_time_outs_is_told_and_not_their_count() -> None:
    """2 of 256 are 0.8 %; 2 + 4 of 512 are 1.2 %."""
    (finding,) = findings({"train/rewards/correctness/timeout": [2.0, 4.0, 4.0]})
    assert (finding.severity, finding.rule, finding.subject, finding.step, finding.verdict.since) == (
        "warning", "checker", "correctness/timeout", 2, 1,
    )  # fmt: skip
    assert finding.text == "correctness: 6 of 512 completions (1.2%) ran into the checker's time limit"
    assert "reward.engine.timeout_seconds" in finding.verdict.advice


def test_few_time_outs_for_ever_are_not_told() -> None:
    assert told({"train/rewards/correctness/timeout": flat(2.0, 60)}) == []


def test_each_component_and_outcome_is_told_for_itself() -> None:
    curves = {"train/rewards/correctness/unjudgeable": flat(9.0, 3), "train/rewards/format/crash": [0.0, 9.0, 9.0],
              "train/rewards/correctness/wrong": flat(256.0, 3)}  # fmt: skip
    assert [(f.subject, f.step) for f in findings(curves)] == [("correctness/unjudgeable", 1), ("format/crash", 2)]


def test_discarded_completions_were_scored_too() -> None:
    """4 of 256 + 256 are 0.8 %."""
    curves = {"train/rewards/correctness/timeout": [4.0], "train/dynamic_sampling/discarded_completions": [256.0]}
    assert told(curves, "algorithm=dapo") == []
    assert told({**curves, "train/dynamic_sampling/discarded_completions": [0.0]}, "algorithm=dapo") == [
        ("warning", "checker", 1, 1)
    ]
