"""Saved completions under a reward, and what another reward changes."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_exp.errors import ConfigError, DataError
from grpo_exp.evaluation.rescoring import Scored, compare_with, score_rows
from grpo_exp.evaluation.saved_completions import ColumnNames
from grpo_exp.rewards.components import build_components
from grpo_exp.settings.reward import RewardSettings

NAMES = ColumnNames()
ROWS: list[dict[str, Any]] = [
    {"prompt": "p1", "completion": r"<think>a</think>\boxed{7}", "target": "7"},
    {"prompt": "p2", "completion": r"\boxed{8}", "target": "7"},
    {"prompt": "p3", "completion": r"\boxed{8}", "target": None},
]


def score(rows: list[dict[str, Any]], format_weight: float = 0.5, **more: Any) -> Scored:
    components = {"correctness": {"kind": "math"}, "format": {"kind": "think_format", "weight": format_weight}, **more}
    settings = RewardSettings.model_validate({"components": components})
    return score_rows(rows, build_components(settings), NAMES, primary="correctness")


def test_line_holds_reward_value_and_reason_and_then_the_row() -> None:
    first, second, third = score(ROWS).lines
    assert list(first) == ["reward", "components", "prompt", "completion", "target"]
    assert first["reward"] == 1.5  # 1 + 0.5 * 1
    assert first["components"] == {
        "correctness": {"value": 1.0, "reason": "match"},
        "format": {"value": 1.0, "reason": "well_formed"},
    }
    assert (second["reward"], second["components"]["correctness"]["reason"]) == (0.0, "mismatch")
    assert (third["reward"], third["components"]["correctness"]) == (None, {"value": None, "reason": "no_target"})


def test_result_of_an_earlier_time_is_replaced() -> None:
    (line,) = score([{**ROWS[0], "reward": -9.0, "components": {"old": 1}}]).lines
    assert (line["reward"], set(line["components"])) == (1.5, {"correctness", "format"})


def test_order_survives_more_rows_than_are_scored_at_a_time() -> None:
    rows = [{"completion": rf"\boxed{{{i}}}", "target": str(i - i % 2)} for i in range(2500)]
    scored = score(rows)
    assert [line["completion"] for line in scored.lines] == [row["completion"] for row in rows]
    assert [line["components"]["correctness"]["value"] for line in scored.lines] == [1.0, 0.0] * 1250
    assert set(scored.seconds) == {"correctness", "format"}


def test_schedule_does_not_count_without_steps() -> None:
    schedule = {"kind": "linear", "start_factor": 0, "end_factor": 1, "end_step": 5}
    (line,) = score(ROWS[:1], language={"kind": "language", "weight": 2.0, "schedule": schedule}).lines
    assert line["reward"] == 3.5  # 1 + 0.5 + 2 * 1


def test_other_columns_reach_the_components() -> None:
    (line,) = score([{"completion": r"a</think>\boxed{7}", "target": "7", "prefilled": True}]).lines
    assert line["reward"] == 1.5


def test_missing_target_column_names_the_fix() -> None:
    with pytest.raises(ConfigError, match=r"no column 'target'.*column\.target=NAME"):
        score([{"completion": "a"}])


# ------------------------------------------------------------------------------------------ compared


def test_rows_are_found_by_prompt_and_completion_wherever_they_stand() -> None:
    new, old = score(ROWS).lines, score(list(reversed(ROWS))).lines
    comparison = compare_with(new, old, NAMES)
    assert (comparison.num_rows, comparison.num_found) == (3, 3)
    assert all(change.rows == [] for change in comparison.changes.values())


def test_what_changed_is_counted_by_direction_and_reason() -> None:
    old = score(ROWS).lines
    changed = [{**ROWS[0], "target": "9"}, {**ROWS[1], "target": "8"}, ROWS[2]]
    comparison = compare_with(score(changed).lines, old, NAMES)
    change = comparison.changes["correctness"]
    assert (change.rows, change.raised, change.lowered) == ([1, 2], 1, 1)
    assert change.reasons == {("match", "mismatch"): 1, ("mismatch", "match"): 1}
    assert change.means() == (0.5, 0.5)  # of the two that have a value, before and after
    assert comparison.changes["format"].rows == []


def test_reward_is_compared_too() -> None:
    comparison = compare_with(score(ROWS, format_weight=2.0).lines, score(ROWS).lines, NAMES)
    assert comparison.changes["reward"].rows == [1]
    assert comparison.changes["reward"].means() == (0.75, 1.5)  # (1.5 + 0) / 2 and (3 + 0) / 2


def test_completion_that_comes_twice_is_paired_once_each() -> None:
    comparison = compare_with(score([ROWS[0]] * 3).lines, score([ROWS[0]] * 2).lines, NAMES)
    assert (comparison.num_rows, comparison.num_found) == (3, 2)


def test_columns_named_as_components_are_values_without_a_reason() -> None:
    """As TRL writes them into a run's parquet files."""
    old = [{"completion": ROWS[0]["completion"], "correctness": 0.0, "format": None, "reward": True}]
    changes = compare_with(score(ROWS[:1]).lines, old, NAMES).changes
    assert set(changes) == {"correctness", "format"}
    assert changes["correctness"].reasons == {(None, "match"): 1}
    assert (changes["format"].rows, changes["format"].raised) == ([1], 0)  # no value before: neither up nor down


@pytest.mark.parametrize("value", ["high", True, [1.0], {"a": 1}])
def test_earlier_value_that_is_no_number_is_refused_with_its_row(value: Any) -> None:
    old = [ROWS[1], {**ROWS[0], "components": {"correctness": {"value": value}}}]
    with pytest.raises(DataError, match=r"--against: row 2 holds components\.correctness\.value=.*; name a file that"):
        compare_with(score(ROWS).lines, old, NAMES)


@pytest.mark.parametrize("earlier", [{}, {"value": None, "reason": ["odd"]}, {"value": float("nan")}])
def test_earlier_score_without_a_value_or_a_reason_counts_as_none(earlier: dict[str, Any]) -> None:
    old = [{**ROWS[0], "components": {"correctness": earlier}}]
    change = compare_with(score(ROWS[:1]).lines, old, NAMES).changes["correctness"]
    assert (change.before, change.reasons) == ([None], {(None, "match"): 1})


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(DataError, match="--against: none of its completions is among those of input"):
        compare_with(score(ROWS).lines, [{"completion": "else"}], NAMES)
