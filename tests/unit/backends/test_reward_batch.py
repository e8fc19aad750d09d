"""The reward as TRL asks for it: every component once per batch, all at the same time."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from grpo_exp.backends.trl.reward_batch import OUTCOMES, RewardBatch
from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import RewardSettings
from grpo_exp.settings.reward_schedule import LinearSchedule

IDS = [[1], [2], [3]]


def fixed(*values: float | None, name: str = "correctness") -> RewardComponent:
    return RewardComponent(name, 1.0, lambda name, completions, columns: [Score(v, "match") for v in values])


def values_of(batch: RewardBatch, completions: list[Any], rows: Sequence[dict[str, Any]] | None = None) -> list[Any]:
    """Score as the trainer does, then ask as TRL does."""
    rows = [{"prompt": "p"}] * len(completions) if rows is None else rows
    batch.score(rows, ["p"] * len(completions), completions, IDS[: len(completions)])
    return [function(completions=completions, prompts=["p"], trainer_state=object()) for function in batch.functions()]


def test_functions_are_called_like_their_components() -> None:
    """TRL names the curve after `__name__`; two functions of one name would become one curve."""
    names = [function.__name__ for function in RewardBatch([fixed(1.0), fixed(1.0, name="form")]).functions()]
    assert names == ["correctness", "form"]


def test_what_cannot_be_judged_stays_none() -> None:
    """None is left out of mean and std; 0 would be a wrong answer."""
    assert values_of(RewardBatch([fixed(1.0, None, 0.0)]), ["a", "b", "c"]) == [[1.0, None, 0.0]]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_value_that_is_not_finite_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="'correctness' returned"):
        values_of(RewardBatch([fixed(0.0, value)]), ["a", "b"])


def test_values_of_another_batch_are_never_handed_out() -> None:
    batch = RewardBatch([fixed(1.0)])
    values_of(batch, ["a"])
    with pytest.raises(AssertionError):
        batch.functions()[0](completions=["b"])


def test_components_get_the_columns_of_the_rows() -> None:
    """Columns that were written as JSON arrive as they were; what TRL keeps for itself does not arrive."""
    seen: dict[str, Any] = {}

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        seen.update(columns)
        return [Score(1.0, "match")] * len(completions)

    rows = [
        {"prompt": "p", "completion": "x", "target": "1", "tests": '[{"input": "1"}]'},
        {"prompt": "q", "completion": "x", "target": ["2", "3"], "tests": '["f(1) == 2"]'},
    ]
    batch = RewardBatch([RewardComponent("c", 1.0, scorer)], json_columns=["tests"])
    batch.score(rows, ["p", "q"], ["a", "b"], [[1], [2]])
    assert seen == {
        "prompts": ["p", "q"],
        "completion_ids": [[1], [2]],
        "target": ["1", ["2", "3"]],
        "tests": [[{"input": "1"}], ["f(1) == 2"]],
    }


def test_components_are_scored_at_the_same_time() -> None:
    """Each of two waits until the other one has begun: one after the other they would wait in vain."""
    meeting = threading.Barrier(2, timeout=10)

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        meeting.wait()
        return [Score(1.0, "match")] * len(completions)

    components = [RewardComponent(name, 1.0, scorer) for name in ("a", "b")]
    assert values_of(RewardBatch(components), ["x"]) == [[1.0], [1.0]]


def test_outcomes_are_counted_apart() -> None:
    reasons = [Score(1.0, "match"), Score(0.0, "mismatch"), Score(0.0, "timeout"), Score(0.0, "crash"),
               Score(None, "no_target"), Score(0.0, "no_box")]  # fmt: skip
    batch = RewardBatch([RewardComponent("c", 1.0, lambda *_: reasons)])
    batch.score([{"prompt": "p"}] * 6, ["p"] * 6, ["a"] * 6, [[1]] * 6)
    assert dict(zip(OUTCOMES, batch.outcomes()[0], strict=True)) == {
        "wrong": 2, "timeout": 1, "crash": 1, "unjudgeable": 1,
    }  # fmt: skip


def test_weights_follow_their_schedules() -> None:
    """From 1 at step 0 to 0 at step 10: at step 5 half of 0.4 is left."""
    fading = LinearSchedule(kind="linear", end_step=10)
    batch = RewardBatch([fixed(1.0), RewardComponent("form", 0.4, fixed(1.0).scorer, fading)])
    assert batch.weights_at(0) == [1.0, 0.4]
    assert batch.weights_at(5) == [1.0, pytest.approx(0.2)]
    assert batch.weights_at(12) == [1.0, 0.0]


def test_real_components_judge_conversations() -> None:
    settings = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})
    completions = [[{"role": "assistant", "content": f"\\boxed{{{value}}}"}] for value in (5, 6)]
    rows = [{"prompt": "p", "target": "5"}] * 2
    assert values_of(RewardBatch(build_components(settings)), completions, rows) == [[1.0, 0.0]]


def test_missing_target_column_is_told_and_not_scored() -> None:
    settings = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})
    with pytest.raises(ValueError, match="no column 'target'"):
        values_of(RewardBatch(build_components(settings)), ["5"], [{"prompt": "p", "answer": "5"}])
