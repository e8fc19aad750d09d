"""Constraints between axes."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.held import describe_held, held_words
from grpo_exp.sweeps.rules import SweepRules, check_settings, reason_to_skip

SETTINGS = {"algorithm": {"num_generations": 8, "beta": 0.0}, "trainer": {"learning_rate": 1e-6, "extra": {}}}


def rules(**values: Any) -> SweepRules:
    return check_settings(SweepRules, values, prefix=("hydra", "sweeper"))


@pytest.mark.parametrize(
    ("condition", "is_skipped"),
    [
        ({"algorithm.num_generations": 8}, True),
        ({"algorithm.num_generations": "8"}, True),
        ({"algorithm.num_generations": 4}, False),
        ({"algorithm.num_generations": [4, 8]}, True),
        ({"algorithm.num_generations": ">8"}, False),
        ({"algorithm.num_generations": ">=8"}, True),
        ({"algorithm.num_generations": "< 9"}, True),
        ({"algorithm.num_generations": "!=8"}, False),
        ({"trainer.learning_rate": "1e-6"}, True),
        ({"trainer.learning_rate": 0.000001}, True),
        ({"algorithm.num_generations": 8, "algorithm.beta": ">0"}, False),  # all conditions must be met
        ({"algorithm.num_generations": 8, "algorithm.beta": 0}, True),
        ({"algorithm": "dapo"}, True),  # the option of a swept group
    ],
)
def test_a_point_is_left_out_where_all_conditions_are_met(condition: dict[str, Any], is_skipped: bool) -> None:
    found = reason_to_skip(rules(skip_if=[condition]), {"algorithm": "dapo"}, SETTINGS)
    assert (found is not None) is is_skipped


def test_the_reason_is_the_authors_own_where_there_is_one() -> None:
    entry = {"algorithm.num_generations": ">4", "because": "does not fit on one GPU"}
    assert reason_to_skip(rules(skip_if=[entry]), {}, SETTINGS) == "does not fit on one GPU"
    entry = {"algorithm.num_generations": ">4"}
    assert reason_to_skip(rules(skip_if=[entry]), {}, SETTINGS) == "skip_if algorithm.num_generations=>4"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"algorithm.betta": 0}, "algorithm.betta is no setting and no axis"),
        ({"algorithm.beta": ">much"}, "compares with what is no number"),
    ],
)
def test_a_condition_that_says_nothing_is_refused(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reason_to_skip(rules(skip_if=[condition]), {}, SETTINGS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"hold": "prompts"},
            "hydra.sweeper.hold=prompts: must be one of 'prompts_per_step' or 'completions_per_step'",
        ),
        ({"on_invalid": "ignore"}, "hydra.sweeper.on_invalid=ignore: must be one of"),
        ({"paired": [["seed"]]}, "a pair of 1 axes moves with nothing"),
        ({"paired": [["seed", "a"], ["a", "b"]]}, "a is named twice"),
        ({"skip_if": [{"because": "x"}]}, "holds no condition"),
        ({"skip_if": [{"seed": "==1"}]}, "seed: '==1' is no comparison; write '>8'"),
        ({"skip_if": [{"seed": [2, ">"]}]}, "seed: '>' is no comparison"),
        ({"skip_if": [{"trainer": {"max_steps": 1}}]}, "write each setting by its whole name, trainer.KEY"),
        ({"skip_iff": []}, "hydra.sweeper.skip_iff: there is no such setting"),
    ],
)
def test_a_wrong_rule_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(**values)
    assert message in str(caught.value)


def base(*, prompts: int | None, completions: int | None, group_size: int = 8) -> dict[str, Any]:
    return {
        "algorithm": {"num_generations": group_size},
        "trainer": {"prompts_per_step": prompts, "completions_per_step": completions},
    }


G = ["algorithm.num_generations"]


def test_held_completions_come_from_prompts_and_the_configured_group_size() -> None:
    """32 prompts x G 8 = 256 completions."""
    words = held_words(rules(hold="completions_per_step"), base(prompts=32, completions=None), G)
    assert words == ("trainer.prompts_per_step=null", "trainer.completions_per_step=256")


def test_held_prompts_come_from_completions_and_the_configured_group_size() -> None:
    """256 completions / G 8 = 32 prompts."""
    words = held_words(rules(hold="prompts_per_step"), base(prompts=None, completions=256), G)
    assert words == ("trainer.prompts_per_step=32", "trainer.completions_per_step=null")


def test_nothing_is_held_where_g_is_no_axis() -> None:
    assert held_words(rules(hold="prompts_per_step"), base(prompts=32, completions=None), ["seed"]) == ()


@pytest.mark.parametrize(
    ("given", "axes", "message"),
    [
        (base(prompts=None, completions=250), G, "250 does not divide by algorithm.num_generations=8"),
        (base(prompts=32, completions=None), [*G, "trainer.prompts_per_step"], "trainer.prompts_per_step is an axis"),
    ],
)
def test_what_cannot_be_held_is_refused(given: dict[str, Any], axes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        held_words(rules(hold="prompts_per_step"), given, axes)


def test_plan_says_what_is_held_and_what_grows() -> None:
    """32 x 4 = 128 and 32 x 16 = 512 completions; 256 / 4 = 64 and 256 / 16 = 16 prompts."""
    prompts = [base(prompts=32, completions=None, group_size=size) for size in (4, 16)]
    told = describe_held(rules(hold="prompts_per_step"), prompts)
    assert told == "trainer.prompts_per_step=32; completions a step: 128 at G 4, 512 at G 16"
    completions = [base(prompts=None, completions=256, group_size=size) for size in (4, 16)]
    told = describe_held(rules(), completions)
    assert told is not None
    assert told.startswith("trainer.completions_per_step=256 (the configuration says so")
    assert told.endswith("prompts a step: 64 at G 4, 16 at G 16")
    assert describe_held(rules(), [base(prompts=32, completions=None)]) is None
