"""Bounds, choices, unknown names: each message has the path a user types, the rule and the fix."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from grpo_exp.settings.run import RunSettings

Changed = Callable[[dict[str, Any]], RunSettings]
Faults = Callable[[dict[str, Any]], tuple[str, ...]]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("algorithm.num_generations", 1, "at least 2"),
        ("algorithm.num_generations", 0, "at least 2"),
        ("algorithm.temperature", -1, "above 0"),
        ("algorithm.temperature", 0, "above 0"),
        ("algorithm.temperature", 2.5, "at most 2"),
        ("algorithm.top_p", 0, "above 0"),
        ("algorithm.top_p", 1.01, "at most 1"),
        ("algorithm.beta", -0.01, "at least 0"),
        ("algorithm.epsilon", 0, "above 0"),
        ("trainer.learning_rate", 0, "above 0"),
        ("trainer.learning_rate", 2, "at most 1"),
        ("trainer.max_steps", 0, "at least 1"),
        ("trainer.adam_beta2", 1.5, "below 1"),
        ("trainer.max_completion_length", 0, "at least 1"),
        ("seed", -1, "at least 0"),
        ("dataset.eval_size", 10_001, "at most 10000"),
        ("dataset.max_operand", 8, "at least 9"),
        ("launch.main_process_port", 80, "at least 1024"),
        ("launch.num_processes", 0, "at least 1"),
        ("health.rules.truncation.window", 0, "at least 1"),
        ("health.kl_probe.every_steps", 0, "at least 1"),
        ("algorithm.sapo_temperature_pos", 0, "above 0"),
        ("algorithm.vespo_lambda_neg", -1, "at least 0"),
        ("algorithm.ref_model_mixup_alpha", 1.5, "at most 1"),
        ("algorithm.ref_model_sync_steps", 0, "at least 1"),
        ("model.priming.fraction_right_boxed", -0.1, "at least 0"),
    ],
)
def test_number_out_of_bounds_names_bound_and_fix(path: str, value: float, rule: str, faults: Faults) -> None:
    (fault,) = faults({path: value})
    assert fault.startswith(f"{path}={value}: must be {rule}")
    assert "; use " in fault


@pytest.mark.parametrize(
    ("path", "value", "near", "others"),
    [
        ("algorithm.loss_type", "dappo", "dapo", ["grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]),
        ("algorithm.scale_rewards", "grp", "group", ["batch", "none"]),
        ("trainer.lr_scheduler_type", "cosin", "cosine", ["constant", "linear"]),
        ("launch.mixed_precision", "bf_16", "bf16", ["no", "fp16"]),
        ("resume", "nevr", "never", ["auto"]),
        ("model.kind", "tny", "tiny", ["local"]),
        ("dataset.kind", "jsnl", "jsonl", ["arithmetic"]),
    ],
)
def test_choice_lists_all_and_names_the_nearest(
    path: str, value: str, near: str, others: list[str], faults: Faults
) -> None:
    found = faults({path: value})
    assert found[0].startswith(f"{path}={value}: must be one of ")
    assert f"did you mean {near}?" in found[0]
    assert all(f"'{name}'" in found[0] for name in [near, *others])


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("trainer.max_step", "trainer.max_steps"),
        ("trainer.learning_rat", "trainer.learning_rate"),
        ("algorithm.num_generation", "algorithm.num_generations"),
        ("model.priming.step", "model.priming.steps"),
        ("model.architecture.hidden", "model.architecture.hidden_size"),
        ("dataset.max_operant", "dataset.max_operand"),
        ("reward.components.correctness.wieght", "reward.components.correctness.weight"),
        ("sed", "seed"),
    ],
)
def test_unknown_key_names_the_nearest(path: str, near: str, faults: Faults) -> None:
    (fault,) = faults({path: 5})
    assert fault.startswith(f"{path}: there is no such setting; did you mean {near}")


def test_unknown_key_that_is_near_to_nothing_lists_what_there_is(faults: Faults) -> None:
    (top,) = faults({"foo": 1})
    assert top.startswith("foo: there is no such setting; the settings at the top are ")
    assert "seed" in top
    assert "trainer" in top
    (below,) = faults({"health.qqq": 1})
    assert below.startswith("health.qqq: there is no such setting; the settings below health are ")


def test_several_faults_are_reported_together_in_the_order_of_the_settings(faults: Faults) -> None:
    found = faults(
        {
            "seed": -1,
            "trainer.learning_rate": "fast",
            "algorithm.temperature": -1,
            "algorithm.num_generations": 1,
            "trainer.max_step": 5,
            "model.priming.steps": 0,
            "reward.components.format.weight": "heavy",
        }
    )
    assert [fault.partition(":")[0].partition("=")[0] for fault in found] == [
        "seed",
        "model.priming.steps",
        "reward.components.format.weight",
        "algorithm.num_generations",
        "algorithm.temperature",
        "trainer.learning_rate",
        "trainer.max_step",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.learning_rate", "x"),
        ("model.priming.seed", -1),
        ("model.architecture.num_hidden_layers", "x"),
        ("dataset.train_size", 0),
        ("reward.components.format.strict_newlines", "perhaps"),
        ("reward.components.correctness.weight", "x"),
        ("vllm.foo", 1),
        ("tracker.foo", 1),
    ],
)
def test_tag_of_a_union_never_appears_in_a_path(path: str, value: Any, faults: Faults) -> None:
    """Pydantic writes model.tiny.learning_rate and the like; nobody can type that."""
    (fault,) = faults({path: value})
    assert fault.partition(":")[0].partition("=")[0] == path


def test_any_mixture_of_faults_names_every_one(faults: Faults, data: dict[str, Any]) -> None:
    """60 random selections out of ten independent faults: as many messages as faults, each with its path."""
    wrong: dict[str, Any] = {
        "seed": -1, "name": "a/b", "algorithm.temperature": -1, "algorithm.num_generations": 1, "trainer.max_steps": 0,
        "trainer.learning_rate": "fast", "model.learning_rate": -1, "dataset.eval_size": 0,
        "health.again_after_steps": 0, "launch.num_processes": 0,
    }  # fmt: skip
    right = {path: _value(data, path) for path in wrong}
    generator = random.Random(0)
    for _ in range(60):
        chosen = generator.sample(sorted(wrong), k=generator.randint(1, len(wrong)))
        found = faults(right | {path: wrong[path] for path in chosen})
        assert sorted(fault.partition(":")[0].partition("=")[0] for fault in found) == sorted(chosen)


def _value(data: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        data = data[key]  # type: ignore[assignment]
    return data


@pytest.mark.parametrize("name", ["a/b", "..", "", "-x", "a b", "ä"])
def test_name_of_a_run_is_a_plain_folder_name(name: str, faults: Faults) -> None:
    (fault,) = faults({"name": name})
    assert fault.startswith("name=")
    assert "is not a plain folder name" in fault


# ----------------------------------------------------------------------------------- several settings together


def test_upper_clip_below_the_lower_one(faults: Faults) -> None:
    (fault,) = faults({"algorithm.epsilon_high": 0.1})
    assert fault.startswith("algorithm.epsilon_high: 0.1 is below epsilon (0.2)")
    assert "raise epsilon_high, or set it to null" in fault


def test_no_upper_clip_means_the_lower_one(changed: Changed) -> None:
    assert changed({"algorithm.epsilon_high": None}).algorithm.clip_high == 0.2
    assert changed({"algorithm.epsilon_high": 0.28}).algorithm.clip_high == 0.28


def test_clip_of_deepseek_r1_is_a_right_one(changed: Changed) -> None:
    """1 - 10 is below 0: there is no lower clip. The notes tell of it where no preset states it."""
    algorithm = changed({"algorithm.epsilon": 10, "algorithm.epsilon_high": 10}).algorithm
    assert (algorithm.epsilon, algorithm.clip_high) == (10.0, 10.0)


def test_two_sided_clip_lies_above_the_upper_one(faults: Faults, changed: Changed) -> None:
    """With epsilon_high 0.28 the bound is 1.28."""
    (fault,) = faults({"algorithm.delta": 1.2})
    assert fault.startswith("algorithm.delta: 1.2 must lie above 1 + epsilon_high (1.28)")
    assert changed({"algorithm.delta": 1.5}).algorithm.delta == 1.5


def test_cispo_cap_is_absolute_so_a_usual_epsilon_is_refused(faults: Faults, changed: Changed) -> None:
    (fault,) = faults({"algorithm.loss_type": "cispo"})
    assert fault.startswith("algorithm.epsilon_high: 0.28 caps the ratio below 1")
    assert changed({"algorithm.loss_type": "cispo", "algorithm.epsilon_high": 5.0}).algorithm.clip_high == 5.0


@pytest.mark.parametrize(("prompts", "completions", "count"), [(None, None, 0), (32, 256, 2)])
def test_exactly_one_of_prompts_and_completions(
    prompts: int | None, completions: int | None, count: int, faults: Faults
) -> None:
    (fault,) = faults({"trainer.prompts_per_step": prompts, "trainer.completions_per_step": completions})
    assert fault.startswith("trainer.prompts_per_step, trainer.completions_per_step: ")
    assert f"{count} of them are set and exactly one is wanted" in fault


def test_either_alone_is_fine(changed: Changed) -> None:
    settings = changed({"trainer.prompts_per_step": None, "trainer.completions_per_step": 64})
    assert (settings.trainer.prompts_per_step, settings.trainer.completions_per_step) == (None, 64)


def test_warmup_without_effect_is_told(faults: Faults) -> None:
    (fault,) = faults({"trainer.warmup_steps": 5, "trainer.lr_scheduler_type": "constant"})
    assert fault.startswith("trainer.warmup_steps: 5 has no effect with lr_scheduler_type=constant")


def test_primary_component_must_exist(faults: Faults) -> None:
    (fault,) = faults({"reward.primary": "accuracy"})
    assert fault.startswith("reward.primary: 'accuracy' is not a component")
    assert "['correctness', 'format']" in fault


def test_reward_without_weight_is_refused(faults: Faults) -> None:
    (fault,) = faults({"reward.components.correctness.weight": 0, "reward.components.format.weight": 0})
    assert "every component has weight 0" in fault
    assert fault.startswith("reward")


def test_reward_without_components_is_refused(faults: Faults) -> None:
    (fault,) = faults({"reward.components": {}})
    assert fault.startswith("reward")
    assert "at least one component" in fault


def test_importance_correction_that_truncates_needs_a_cap(faults: Faults, changed: Changed) -> None:
    cap = "vllm.importance_sampling_clip_max"
    colocated = {"vllm.mode": "colocate", cap: None}
    (fault,) = faults(colocated)
    assert fault.startswith(f"{cap}: null with importance_sampling_mode=token_truncate")
    assert changed({**colocated, "vllm.importance_sampling_mode": "token_mask"}).vllm.mode == "colocate"
    assert changed({**colocated, "vllm.importance_sampling_correction": False}).vllm.mode == "colocate"


def test_inline_launch_is_one_process(faults: Faults) -> None:
    (fault,) = faults({"launch.kind": "inline", "launch.num_processes": 2})
    assert fault.startswith("launch.num_processes: 2 with launch=inline")


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"model.architecture.hidden_size": 190}, "model.architecture.hidden_size: 190 does not divide by"),
        ({"model.architecture.num_key_value_heads": 3}, "model.architecture.num_key_value_heads: 4 query heads"),
        ({"model.priming.fraction_right_unboxed": 0.7}, "model.priming"),
        ({"dataset.operations": []}, "dataset.operations: at least one"),
        ({"dataset.operations": ["+", "+"]}, "dataset.operations: ['+', '+'] names one twice"),
    ],
)
def test_rules_inside_a_group(changes: dict[str, Any], start: str, faults: Faults) -> None:
    """190 / 4 heads and 4 heads / 3 do not divide; 0.35 + 0.7 = 1.05 is above 1."""
    (fault,) = faults(changes)
    assert fault.startswith(start)


def test_shares_of_the_teacher_name_both_settings(faults: Faults) -> None:
    (fault,) = faults({"model.priming.fraction_right_unboxed": 0.7})
    assert "model.priming.fraction_right_boxed" in fault
    assert "model.priming.fraction_right_unboxed" in fault


def test_file_and_folder_that_a_group_needs(faults: Faults) -> None:
    (dataset,) = faults({"dataset": {"kind": "jsonl"}})
    assert dataset.startswith("dataset.path: dataset=jsonl needs a file; add dataset.path=FILE.jsonl")
    found = faults({"model": {"kind": "local"}})
    assert found[-1].startswith("model.path: model=local needs the folder of the model; add model.path=FOLDER")


def test_missing_group_is_named(faults: Faults, data: dict[str, Any]) -> None:
    del data["health"]
    assert faults({}) == ("health: is missing and has no default; add health=VALUE",)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("dpao", "dapo"),  # gdpo shares as many letters in order, but not all of them
        ("gpdo", "gdpo"),
        ("gpso", "gspo"),
        ("grop", "grpo"),
        ("dr_gpro", "dr_grpo"),
        ("cipso", "cispo"),
        ("daop", "dapo"),
        ("zzz", None),
    ],
)
def test_swapped_letters_name_the_preset_that_was_meant(text: str, near: str | None) -> None:
    from grpo_exp.settings.faults import nearest

    presets = ["bnpo", "cispo", "dapo", "dr_grpo", "gdpo", "grpo", "gspo", "luspo", "orz", "r1", "sapo", "vespo"]
    assert nearest(text, presets, cutoff=0.4) == near
