"""A reward component as TRL calls it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from grpo_exp.backends.trl.trainer import to_reward_function
from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import RewardSettings


def fixed(*values: float | None) -> RewardComponent:
    return RewardComponent("correctness", 1.0, lambda name, completions, columns: [Score(v, "match") for v in values])


def test_function_is_called_like_its_component() -> None:
    """TRL names the curve after `__name__`; two functions of one name would become one curve."""
    assert to_reward_function(fixed(1.0)).__name__ == "correctness"


def test_what_cannot_be_judged_stays_none() -> None:
    """None is left out of mean and std; 0 would be a wrong answer."""
    assert to_reward_function(fixed(1.0, None, 0.0))(completions=["a", "b", "c"]) == [1.0, None, 0.0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_value_that_is_not_finite_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="'correctness' returned"):
        to_reward_function(fixed(0.0, value))(completions=["a", "b"])


def test_columns_are_those_with_one_value_per_completion() -> None:
    """TRL adds its state and two log functions; `completion_ids` and `prompts` are columns like others."""
    seen: dict[str, Any] = {}

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        seen.update(columns)
        return [Score(1.0, "match")] * len(completions)

    function = to_reward_function(RewardComponent("c", 1.0, scorer))
    function(
        completions=["a", "b"],
        prompts=["p", "q"],
        completion_ids=[[1], [2]],
        target=["1", ["2", "3"]],
        trainer_state=object(),
        log_extra=print,
        log_metric=print,
    )
    assert seen == {"prompts": ["p", "q"], "completion_ids": [[1], [2]], "target": ["1", ["2", "3"]]}


def test_real_components_judge_conversations() -> None:
    settings = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})
    (component,) = build_components(settings)
    completions = [[{"role": "assistant", "content": f"\\boxed{{{value}}}"}] for value in (5, 6)]
    assert to_reward_function(component)(completions=completions, target=["5", "5"], prompts=["", ""]) == [1.0, 0.0]


def test_missing_target_column_is_told_and_not_scored() -> None:
    settings = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})
    (component,) = build_components(settings)
    with pytest.raises(ValueError, match="no column 'target'"):
        to_reward_function(component)(completions=["5"], answer=["5"])
