"""Rewards as they are configured: schedules, rules over several components, one group alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.components import build_components
from grpo_exp.settings import load
from grpo_exp.settings.reward import RewardSettings, ScoredReward
from grpo_exp.settings.run import RunSettings

Faults = Callable[..., tuple[str, ...]]


def weights(schedule: dict[str, Any] | None, steps: list[int], weight: float = 0.5) -> list[float]:
    component: dict[str, Any] = {"kind": "math", "weight": weight}
    if schedule is not None:
        component["schedule"] = schedule
    settings = RewardSettings.model_validate({"components": {"correctness": component}})
    (built,) = build_components(settings)
    assert [settings.components["correctness"].weight_at(step) for step in steps] == [
        built.weight_at(step) for step in steps
    ]
    return [built.weight_at(step) for step in steps]


# ------------------------------------------------------------------------------------------ schedules


@pytest.mark.parametrize("schedule", [None, {"kind": "constant"}])
def test_weight_stays_by_default(schedule: dict[str, Any] | None) -> None:
    assert weights(schedule, [0, 1, 10_000]) == [0.5, 0.5, 0.5]


def test_linear_schedule_multiplies_the_weight() -> None:
    """Factor 1 at step 10, 0 at step 30: a half at step 20, a quarter of the way at step 15."""
    schedule = {"kind": "linear", "start_step": 10, "end_step": 30}
    assert weights(schedule, [0, 10, 15, 20, 30, 99]) == [0.5, 0.5, 0.375, 0.25, 0.0, 0.0]


def test_linear_schedule_can_rise() -> None:
    schedule = {"kind": "linear", "start_factor": 0, "end_factor": 2, "end_step": 4}
    assert weights(schedule, [0, 1, 2, 4, 5], weight=-1.0) == [0.0, -0.5, -1.0, -2.0, -2.0]


def test_step_schedule_jumps_at_its_steps() -> None:
    schedule = {"kind": "step", "at_steps": [10, 20], "factors": [0.5, 0]}
    assert weights(schedule, [0, 9, 10, 19, 20, 99], weight=1.0) == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"kind": "linear", "start_step": 5, "end_step": 5}, "end_step: 5 is not above start_step=5; use end_step=6"),
        ({"kind": "linear", "end_factor": 1, "end_step": 5}, "nothing moves"),
        ({"kind": "linear", "end_factor": -1, "end_step": 5}, "greater than or equal to 0"),
        ({"kind": "step", "at_steps": [1, 2], "factors": [1]}, "2 steps and 1 factors"),
        ({"kind": "step", "at_steps": [2, 1], "factors": [1, 2]}, "do not ascend"),
        ({"kind": "step", "at_steps": [1, 1], "factors": [1, 2]}, "do not ascend"),
        ({"kind": "step", "at_steps": [], "factors": []}, "at least 1"),
        ({"kind": "step", "at_steps": [-1], "factors": [1]}, "greater than or equal to 0"),
        ({"kind": "cosine"}, "'constant', 'linear', 'step'"),
    ],
)
def test_schedule_that_makes_no_sense_is_refused(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        weights(schedule, [0])


def test_list_with_a_wrong_member_is_not_called_short_too(faults: Faults) -> None:
    key = "reward.components.correctness.schedule"
    assert faults({key: {"kind": "step", "at_steps": [-1], "factors": [1]}}) == (
        f"{key}.at_steps.0=-1: must be at least 0; use 0 or more",
    )
    found = faults({key: {"kind": "step", "at_steps": [], "factors": []}})
    assert found[0] == f"{key}.at_steps=[]: holds 0 values; at least 1 is wanted; add what is missing"


@pytest.mark.parametrize(
    ("path", "first"), [("reward.components.x", "math"), ("reward.components.correctness.schedule", "constant")]
)
def test_group_that_does_not_say_what_it_is_is_told_what_it_may_be(faults: Faults, path: str, first: str) -> None:
    (fault,) = faults({path: {}})
    assert fault.startswith(f"{path}.kind: is missing and says what {path} is; add kind: one of {first}, ")


@pytest.mark.parametrize("pattern", [r"\d{1000000000000}", "[[]", "(", "(" * 5000])
def test_pattern_that_cannot_be_used_is_refused_in_a_sentence(faults: Faults, pattern: str) -> None:
    (fault,) = faults({"reward.components.shape": {"kind": "regex", "pattern": pattern}})
    assert fault.startswith("reward.components.shape.pattern=")
    assert "is no regular expression that can be used" in fault


# ------------------------------------------------------------------------------------------ rules over components


def test_component_that_only_punishes_is_no_accuracy(faults: Faults) -> None:
    overlong = {"kind": "overlong", "max_completion_tokens": 20, "cache_tokens": 5}
    (fault,) = faults({"reward.components.overlong": overlong, "reward.primary": "overlong"})
    assert fault.startswith("reward.primary: 'overlong' is of kind overlong, whose mean is no accuracy")


def test_score_may_judge_by_any_component() -> None:
    components = {"overlong": {"kind": "overlong", "max_completion_tokens": 20, "cache_tokens": 5}}
    assert ScoredReward.model_validate({"components": components}).primary == "overlong"
    with pytest.raises(ValidationError, match="whose mean is no accuracy"):
        RewardSettings.model_validate({"components": components, "primary": "overlong"})
    two = {**components, "repetition": {"kind": "repetition"}}
    assert ScoredReward.model_validate({"components": two, "primary": "repetition"}).primary == "repetition"
    with pytest.raises(ValidationError, match="primary: 'correctness' is not a component"):
        ScoredReward.model_validate({"components": two})


def test_cosine_needs_a_component_that_judges(faults: Faults) -> None:
    cosine = {"kind": "cosine_length", "max_completion_tokens": 20, "judged_by": "corectness"}
    (fault,) = faults({"reward.components.length": cosine})
    assert fault == (
        "reward.components.length.judged_by: 'corectness' is no component that judges an answer; name one of "
        "['correctness', 'format']"
    )
    (fault,) = faults({"reward.components.length": {**cosine, "judged_by": "length"}})
    assert "'length' is no component that judges an answer" in fault


def test_all_faults_of_a_reward_are_told_at_once(faults: Faults) -> None:
    found = faults(
        {
            "reward.components.length": {"kind": "cosine_length", "max_completion_tokens": 20, "judged_by": "x"},
            "reward.primary": "y",
        }
    )
    assert [fault.partition(":")[0] for fault in found] == ["reward.primary", "reward.components.length.judged_by"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("timeout_seconds", 0, "must be above 0"),
        ("timeout_seconds", 4000, "must be at most 3600"),
        ("num_workers", 0, "must be at least 1"),
        ("num_workers", 257, "must be at most 256"),
        ("memory_gib", 0.5, "must be at least 1"),
    ],
)
def test_limits_have_bounds(faults: Faults, key: str, value: Any, message: str) -> None:
    (fault,) = faults({f"reward.engine.{key}": value})
    assert fault.startswith(f"reward.engine.{key}={value}: {message}")


def test_limits_default_to_those_of_the_machine(typed: Callable[..., RunSettings]) -> None:
    engine = typed("reward.engine.num_workers=null").reward.engine
    assert (engine.timeout_seconds, engine.num_workers, engine.memory_gib) == (5.0, None, 4.0)
    assert typed("reward.engine.timeout_seconds='1e1'", "reward.engine.num_workers=3").reward.engine.num_workers == 3


# ------------------------------------------------------------------------------------------ one group alone


def test_reward_group_composes_alone_as_it_does_in_a_run(typed: Callable[..., RunSettings]) -> None:
    words = ["reward=math", "reward.components.format.weight=0.3", "+reward.components.x={kind: repetition}"]
    assert load.load_group("reward", RewardSettings, words) == typed(*words).reward


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("reward=maths", r"reward=maths: there is no such option; did you mean reward=math\?"),
        ("reward.primery=x", r"reward.primery: there is no such setting; did you mean reward.primary\?"),
        ("reward.components.format.weight=x", r"reward.components.format.weight=x: a number is wanted"),
        ("reward.components.format.kind=think_formt", r"did you mean think_format\?"),
        ("reward.primary=${nothing}", r"correct the name inside"),
    ],
)
def test_fault_in_the_group_is_told_as_in_a_run(word: str, message: str) -> None:
    words = [word] if word.startswith("reward=") else ["reward=math", word]
    with pytest.raises(ConfigError, match=message):
        load.load_group("reward", RewardSettings, words)


@pytest.mark.parametrize(
    ("option", "components"),
    [
        ("math", {"correctness": ("math", 1.0), "format": ("think_format", 0.1)}),
        ("math_only", {"correctness": ("math", 1.0)}),
        ("gsm8k", {"correctness": ("gsm8k", 1.0)}),
        ("r1", {"correctness": ("math", 1.0), "format": ("think_format", 1.0)}),
        ("text_quality", {"quality": ("text_quality", 1.0), "repetition": ("repetition", 0.5)}),
    ],
)
def test_option_holds_what_its_name_says(option: str, components: dict[str, tuple[str, float]]) -> None:
    settings = load.load_group("reward", RewardSettings, [f"reward={option}"])
    assert {name: (c.kind, c.weight) for name, c in settings.components.items()} == components
