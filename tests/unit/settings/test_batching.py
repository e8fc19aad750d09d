"""The batch arithmetic, written out.

prompts_per_step x G = completions_per_step = num_processes x gradient_accumulation_steps x per_device_train_batch_size.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings.batching import BatchPlan, solve_batch
from grpo_exp.settings.run import RunSettings

Changed = Callable[[dict[str, Any]], RunSettings]
Plan = Callable[..., BatchPlan]

KEYS = {
    "prompts": "trainer.prompts_per_step",
    "completions": "trainer.completions_per_step",
    "group": "algorithm.num_generations",
    "processes": "launch.num_processes",
    "micro": "trainer.per_device_train_batch_size",
    "limit": "model.max_micro_batch",
    "updates": "algorithm.updates_per_batch",
    "iterations": "algorithm.num_iterations",
}


@pytest.fixture
def plan(changed: Changed) -> Plan:
    """Return `plan(prompts=..., group=...)`; what is not given is null or the default."""

    def solve(**numbers: int) -> BatchPlan:
        given = {"prompts": None, **numbers}
        return solve_batch(changed({KEYS[name]: value for name, value in given.items()}))

    return solve


@pytest.fixture
def refusal(plan: Plan) -> Callable[..., str]:
    def collect(**numbers: int) -> str:
        with pytest.raises(ConfigError) as caught:
            plan(**numbers)
        (fault,) = caught.value.faults
        return fault

    return collect


def test_default_is_one_forward_pass_of_all(plan: Plan) -> None:
    """32 x 8 = 256 completions = 1 process x 1 micro-step x 256."""
    found = plan(prompts=32, group=8)
    assert found.completions_per_step == 256
    assert (found.per_device_train_batch_size, found.gradient_accumulation_steps) == (256, 1)
    assert (found.steps_per_generation, found.prompts_per_generation) == (1, 32)


@pytest.mark.parametrize(
    ("numbers", "micro", "accumulation"),
    [
        ({"prompts": 32, "group": 8, "limit": 100}, 64, 4),  # the largest divisor of 256 up to 100
        ({"prompts": 3, "group": 7, "limit": 8}, 7, 3),  # 21 = 3 x 7
        ({"prompts": 1, "group": 13, "limit": 8}, 1, 13),  # 13 is prime
        ({"prompts": 32, "group": 8, "processes": 2, "limit": 256}, 128, 1),  # 256 = 2 x 128
        ({"prompts": 6, "group": 4, "processes": 3, "limit": 5}, 4, 2),  # 24 = 3 x 8 = 3 x 2 x 4
        ({"prompts": 4, "group": 8, "micro": 4}, 4, 8),  # 32 = 8 x 4
        ({"completions": 64, "group": 8, "micro": 16}, 16, 4),  # 64 = 4 x 16
    ],
)
def test_micro_batch_is_the_most_that_divides(
    numbers: dict[str, int], micro: int, accumulation: int, plan: Plan
) -> None:
    found = plan(**numbers)
    assert (found.per_device_train_batch_size, found.gradient_accumulation_steps) == (micro, accumulation)


def test_several_updates_per_batch(plan: Plan) -> None:
    """4 prompts x 8 an update, 3 updates: 12 prompts are generated at once and cut into 3 x 2 micro-steps of 16."""
    found = plan(prompts=4, group=8, micro=16, updates=3)
    assert found.prompts_per_generation == 12
    assert found.gradient_accumulation_steps == 2
    assert found.steps_per_generation == 6
    assert found.optimizer_steps_per_generation == 3
    # TRL: generation_batch_size = micro x processes x steps_per_generation = 16 x 1 x 6 = 96 = 12 x 8
    assert found.per_device_train_batch_size * found.num_processes * found.steps_per_generation == 12 * 8


def test_iterations_repeat_the_updates(plan: Plan) -> None:
    """2 updates x 3 passes: 6 optimizer steps until the next generation, of the same 2 x 4 prompts."""
    found = plan(prompts=4, group=8, updates=2, iterations=3)
    assert (found.optimizer_steps_per_generation, found.prompts_per_generation) == (6, 8)


def test_arithmetic_holds_for_every_solvable_combination(plan: Plan) -> None:
    """Prompts 1-6, G 2-6, 1-4 processes, any micro-batch limit: either it multiplies up, or 4 does not divide."""
    for prompts in range(1, 7):
        for group in range(2, 7):
            for processes in range(1, 5):
                numbers = {"prompts": prompts, "group": group, "processes": processes, "limit": prompts + 1}
                if prompts * group % processes:
                    with pytest.raises(ConfigError):
                        plan(**numbers)
                    continue
                found = plan(**numbers)
                assert found.completions_per_step == prompts * group
                assert (
                    processes * found.gradient_accumulation_steps * found.per_device_train_batch_size == prompts * group
                )
                assert found.per_device_train_batch_size <= prompts + 1


def test_description_holds_every_number(plan: Plan) -> None:
    assert plan(prompts=4, group=8, micro=8, updates=2).describe() == (
        "4 prompts x 8 completions = 32 a step = 1 process x 4 micro-steps x 8; "
        "64 completions are generated every 2 steps"
    )
    assert "1 micro-step x 32; 32 completions are generated every 1 step" in plan(prompts=4, group=8).describe()


# ------------------------------------------------------------------------------- refusals, with the nearest values


def test_completions_that_cut_a_group(refusal: Callable[..., str]) -> None:
    """100 = 12 x 8 + 4: near G 5 and 10 (both divide 100); near totals 96 and 104."""
    fault = refusal(completions=100, group=8)
    assert fault.startswith("algorithm.num_generations=8: trainer.completions_per_step=100 does not divide by it")
    assert "algorithm.num_generations=5 or 10 " in fault
    assert fault.endswith("trainer.completions_per_step=96 or 104")


def test_group_that_does_not_divide_the_micro_batch(refusal: Callable[..., str]) -> None:
    """4 prompts x 7 = 28 and micro-batches of 8: 4 G must divide by 8, so G 6 or 8; 28 divides by 7 or 14."""
    fault = refusal(prompts=4, group=7, micro=8)
    assert "4 prompts x 7 = 28 completions a step over 1 process(es) do not divide by" in fault
    assert "use algorithm.num_generations=6 or 8, " in fault
    assert "trainer.per_device_train_batch_size=7 or 14 " in fault


def test_batch_larger_than_any_machine_wants(refusal: Callable[..., str], plan: Plan) -> None:
    """16,384 x 64 = 1,048,576 completions; 262,144 / 64 = 4,096 prompts are the most."""
    fault = refusal(prompts=16_384, group=64)
    assert fault.startswith("trainer.prompts_per_step=16384: with algorithm.num_generations=64")
    assert "1048576 completions would be generated at once" in fault
    assert fault.endswith("use trainer.prompts_per_step=4096 or less")
    assert plan(prompts=4096, group=64).completions_per_step == 262_144


def test_several_updates_count_as_one_batch(refusal: Callable[..., str]) -> None:
    """64 x 8 x 1,024 updates = 524,288; 262,144 / (8 x 1,024) = 32 groups, 256 completions a step."""
    fault = refusal(completions=512, group=8, updates=1024)
    assert fault.endswith("use trainer.completions_per_step=256 or less")
    assert refusal(prompts=1, group=1024, updates=1024).endswith("lower algorithm.updates_per_batch")


def test_processes_that_do_not_divide(refusal: Callable[..., str]) -> None:
    """5 x 6 = 30 over 4 processes: 4 x 6 = 24 and 6 x 6 = 36 do divide."""
    fault = refusal(prompts=5, group=6, processes=4)
    assert fault.startswith("trainer.prompts_per_step=5: 30 completions a step do not divide by launch.num_processes=4")
    assert fault.endswith("use trainer.prompts_per_step=4 or 6")


def test_processes_that_do_not_divide_completions_name_completions(refusal: Callable[..., str]) -> None:
    """30 completions are 5 groups of 6; 4 and 6 groups are 24 and 36."""
    fault = refusal(completions=30, group=6, processes=4)
    assert fault.startswith("trainer.completions_per_step=30: ")
    assert fault.endswith("use trainer.completions_per_step=24 or 36")


@pytest.mark.parametrize(("completions", "group"), [(7, 8), (3, 2), (1, 2), (13, 4), (101, 8)])
def test_every_value_that_is_named_works(completions: int, group: int, plan: Plan, refusal: Callable[..., str]) -> None:
    fault = refusal(completions=completions, group=group)
    groups, totals = fault.split("use algorithm.num_generations=")[1].split(" or trainer.completions_per_step=")
    for value in groups.split(" or "):
        if value != "another value":
            assert plan(completions=completions, group=int(value)).completions_per_step == completions
    for value in totals.split(" or "):
        assert plan(completions=int(value), group=group).num_generations == group
    assert totals != "another value"


# ------------------------------------------------------------------------------- cases d020 to d037, on our keys

CASES = {
    case["id"]: case
    for line in (Path(__file__).parents[2] / "cases" / "advantages.jsonl").read_text().splitlines()
    if (case := json.loads(line))["id"] >= "d020"
}
#: TRL's micro-batch, accumulation and G, given as our total of completions -> (numbers, prompts a step).
SOLVED: dict[str, tuple[dict[str, int], int]] = {
    "d020": ({"completions": 6 * 2, "group": 4, "micro": 6}, 3),  # 12 / 4
    "d022": ({"completions": 7 * 8, "group": 8, "micro": 8, "processes": 7}, 7),  # 56 / 8
    "d023": ({"completions": 8, "group": 8, "micro": 1}, 1),  # 8 micro-steps of 1
    "d024": ({"completions": 2 * 4, "group": 8, "micro": 4, "processes": 2}, 1),  # the group lies on both ranks
}
#: Our words -> start of the message.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "d027": ({"algorithm.num_generations": 1}, "algorithm.num_generations=1: must be at least 2; use 2 or more"),
    "d032": ({"trainer.learning_rate": "abc"}, "trainer.learning_rate=abc: a number is wanted"),
    "d033": (
        {"algorithm.scale_rewards": "grp"},
        "algorithm.scale_rewards=grp: must be one of 'group', 'batch' or 'none'",
    ),
    "d034": ({"algorithm.loss_type": "foo"}, "algorithm.loss_type=foo: must be one of 'grpo', 'dapo', 'dr_grpo'"),
}
OWN_TEST = {"d031", "d036", "d037"}
NO_COUNTERPART = {
    "d025": "held-out evaluation has its own loop without groups, so no evaluation batch has to divide by G",
    "d026": "as d025; trainer.eval_samples is any number",
}


def test_every_case_is_accounted_for() -> None:
    tables: list[Any] = [SOLVED, REFUSED, OWN_TEST, NO_COUNTERPART]
    assert sorted(case for table in tables for case in table) == sorted(CASES)


@pytest.mark.parametrize("case_id", SOLVED)
def test_case_that_is_solved(case_id: str, plan: Plan) -> None:
    numbers, prompts = SOLVED[case_id]
    found = plan(**numbers)
    assert found.prompts_per_step == prompts
    given = CASES[case_id]["input"]["config"]
    assert found.per_device_train_batch_size == given["per_device_train_batch_size"]
    assert found.gradient_accumulation_steps == given["gradient_accumulation_steps"]


@pytest.mark.parametrize("case_id", REFUSED)
def test_case_that_is_refused(case_id: str, faults: Callable[..., tuple[str, ...]]) -> None:
    changes, start = REFUSED[case_id]
    (fault,) = faults(changes)
    assert fault.startswith(start)


def test_d025_number_of_held_out_samples_needs_to_divide_by_nothing(changed: Changed) -> None:
    assert changed({"trainer.eval_samples": 3}).trainer.eval_samples == 3


def test_d031_beta_as_text_is_a_float(changed: Changed) -> None:
    beta = changed({"algorithm.beta": "0.04"}).algorithm.beta
    assert beta == 0.04
    assert type(beta) is float


def test_d036_settings_hold_plain_values_only() -> None:
    """A composed list or dictionary that stays OmegaConf's own breaks json.dumps."""
    from grpo_exp.settings import load

    settings = load.to_settings(load.compose(["+trainer.extra.vllm_guided={a: [1, 2]}", "dataset.operations=[+,-]"]))
    assert type(settings.trainer.extra["vllm_guided"]) is dict
    assert type(settings.trainer.extra["vllm_guided"]["a"]) is list
    assert json.loads(json.dumps(settings.model_dump(mode="json"))) == settings.model_dump(mode="json")


@pytest.mark.parametrize("key", ["generation_batch_size", "steps_per_generation"])
def test_d037_generation_batch_is_given_in_one_way_only(key: str, changed: Changed) -> None:
    """Both of TRL's fields are refused: algorithm.updates_per_batch decides them."""
    from grpo_exp.preflight import prepare

    with pytest.raises(ConfigError, match=rf"trainer\.extra\.{key}: .* set algorithm\.updates_per_batch instead"):
        prepare(changed({f"trainer.extra.{key}": 16}))
