"""Notes of a run: what has no effect in this combination, and what is known to go wrong, one line each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_exp import devices
from grpo_exp.preflight import prepare
from grpo_exp.settings import load


@pytest.fixture(autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, no GPU, an empty cache: what is said must not depend on where the test runs."""
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))


#: Presets with four updates a batch want four times as many prompts at once.
SMALL = ("trainer.prompts_per_step=8",)


def notes(*words: str) -> tuple[str, ...]:
    return prepare(load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words]))).notes


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=grpo"],
        ["algorithm=dapo"],
        ["algorithm=dr_grpo"],
        ["algorithm=bnpo", "trainer.fast_step=false"],  # its gradient depends on the split
        ["algorithm=gdpo"],
        ["algorithm=orz"],
        *([f"algorithm={preset}", *SMALL] for preset in ("cispo", "gspo", "luspo", "sapo", "vespo")),
        ["reward=math_only"],
        ["launch=ddp"],
        ["launch=inline"],
        ["health=off"],
        ["experiment=smoke"],
    ],
)
def test_options_as_they_are_have_nothing_to_say(words: list[str]) -> None:
    assert notes(*words) == ()


#: What is typed -> start of the one note.
TOLD = {
    "bias correction of no KL": (
        ["algorithm=dr_grpo", "algorithm.use_bias_correction_kl=true"],
        "algorithm.use_bias_correction_kl has no effect: algorithm.beta is 0",
    ),
    "half of Dr. GRPO": (
        ["algorithm=dr_grpo", "algorithm.scale_rewards=group"],
        "algorithm.scale_rewards=group with loss_type=dr_grpo",
    ),
    "cut sampling": (["algorithm.top_p=0.9"], "algorithm.top_p=0.9: samples come from a cut distribution"),
    "scaling that is not asked for": (
        ["algorithm=dr_grpo", "algorithm.multi_objective_aggregation=normalize_then_sum"],
        "algorithm.scale_rewards=none has no effect: normalize_then_sum divides each component",
    ),
    "clip around a ratio of 1": (
        ["algorithm.epsilon=0.3", "algorithm.epsilon_high=0.3"],
        "algorithm.epsilon=0.3, algorithm.epsilon_high=0.3: no effect, each batch is used for one update",
    ),
    "two-sided clip around a ratio of 1": (
        ["algorithm.delta=4"],
        "algorithm.delta=4.0: no effect, each batch is used for one update, so the ratio is 1",
    ),
    "clip of a loss without one": (
        ["algorithm.loss_type=sapo", "algorithm.epsilon=0.3", "algorithm.epsilon_high=0.4"],
        "algorithm.epsilon=0.3, algorithm.epsilon_high=0.4: no effect, loss_type=sapo does not clip that way",
    ),
    "lower clip of a loss with a cap": (
        ["algorithm.loss_type=cispo", "algorithm.epsilon=0.3", "algorithm.epsilon_high=5"],
        "algorithm.epsilon=0.3: no effect, loss_type=cispo does not clip that way",
    ),
    "sequence ratio of a loss with its own": (
        ["algorithm.loss_type=vespo", "algorithm.importance_sampling_level=sequence"],
        "algorithm.importance_sampling_level=sequence has no effect on loss_type=vespo",
    ),
    "sequence ratio summed over tokens": (
        ["algorithm.loss_type=dapo", "algorithm.importance_sampling_level=sequence"],
        "algorithm.importance_sampling_level=sequence with loss_type=dapo: the loss sums over tokens",
    ),
    "luspo per token": (
        ["algorithm.loss_type=luspo"],
        "algorithm.importance_sampling_level=token with loss_type=luspo",
    ),
    "judged and not rewarded": (
        ["reward.components.correctness.weight=0"],
        "reward.components.correctness.weight=0: the component that accuracy is measured by is not rewarded",
    ),
    "judged and punished": (
        ["reward.components.correctness.weight=-1"],
        "reward.components.correctness.weight=-1: the component that accuracy is measured by is punished",
    ),
    "warm-up longer than the run": (
        ["trainer.warmup_steps=50"],
        "trainer.warmup_steps=50: the run ends at step 50, before trainer.learning_rate is reached",
    ),
    # 0.9^2 = 0.81 and the root of 0.5 is 0.707.
    "Adam that need not converge": (
        ["trainer.adam_beta2=0.5"],
        "trainer.adam_beta1=0.9: Adam wants beta1^2 below the root of beta2 (0.707)",
    ),
    "rate that collapses": (
        ["trainer.learning_rate=5e-4"],
        "trainer.learning_rate=0.0005 on model=tiny: 5e-4 is known to collapse",
    ),
    "checkpointing of a tiny model": (
        ["trainer.gradient_checkpointing=true"],
        "trainer.gradient_checkpointing=true on model=tiny",
    ),
    # 2 + 1 + 2 + 1 + 3 = 9 for 99+99=198, 5 tags and 3 digits: 17 tokens and the default length is 20.
    "operands that were not primed": (
        ["dataset.max_operand=99"],
        "dataset.max_operand=99: the built-in policy is primed on operands to 29",
    ),
    "differences": (
        ["dataset.operations=[+,-]"],
        "dataset.operations with '-': the built-in policy is primed on sums only",
    ),
    "answers that do not fit": (
        ["trainer.max_completion_length=14"],
        "trainer.max_completion_length=14: the longest right answer takes 15 tokens; use 15 or more",
    ),
    "sampling that the loss does not know": (
        ["+trainer.extra.min_p=0.1"],
        "trainer.extra.min_p=0.1: samples come from another distribution than the loss is computed on",
    ),
    "penalty that the loss does not know": (
        ["+trainer.extra.repetition_penalty=1.2"],
        "trainer.extra.repetition_penalty=1.2: samples come from another distribution",
    ),
    "evaluation of TRL": (["+trainer.extra.eval_steps=5"], "trainer.extra.eval_steps=5 has no effect: held-out"),
    "gate of another loss": (
        ["algorithm.sapo_temperature_pos=2.0"],
        "algorithm.sapo_temperature_pos=2.0 has no effect: algorithm.loss_type is not sapo",
    ),
    "kernel of another loss": (
        ["algorithm=sapo", *SMALL, "algorithm.vespo_k_neg=4"],
        "algorithm.vespo_k_neg=4.0 has no effect: algorithm.loss_type is not vespo",
    ),
    "gate that is steeper for rewards": (
        ["algorithm=sapo", *SMALL, "algorithm.sapo_temperature_neg=0.9"],
        "algorithm.sapo_temperature_neg=0.9: below sapo_temperature_pos (1.0)",
    ),
    "clip of a soft gate": (
        ["algorithm=sapo", *SMALL, "algorithm.epsilon=0.3", "algorithm.epsilon_high=0.3"],
        "algorithm.epsilon=0.3, algorithm.epsilon_high=0.3: no effect, loss_type=sapo does not clip that way",
    ),
    "two-sided clip of a kernel": (
        ["algorithm=vespo", *SMALL, "algorithm.delta=4"],
        "algorithm.delta=4.0: no effect, loss_type=vespo does not clip that way",
    ),
    "no lower clip": (
        ["algorithm.epsilon=1.5", "algorithm.epsilon_high=1.5"],
        "algorithm.epsilon=1.5: 1 - epsilon is not above 0, so ratios are never clipped from below",
    ),
    "sequence clip around a ratio of 1": (
        ["algorithm=gspo", "algorithm.updates_per_batch=1"],
        "algorithm.epsilon=0.0003, algorithm.epsilon_high=0.0004: no effect, each batch is used for one update",
    ),
    "scaling of components that are normalised one by one": (
        ["algorithm=gdpo", "algorithm.scale_rewards=none"],
        "algorithm.scale_rewards=none has no effect: normalize_then_sum divides each component",
    ),
    "fast step of a loss that depends on the split": (
        ["algorithm.loss_type=bnpo"],
        "trainer.fast_step=true has no effect: algorithm.loss_type=bnpo divides by the tokens of each micro-batch",
    ),
    "fast step beside an entropy bonus": (
        ["+trainer.extra.entropy_coef=0.01"],
        "trainer.fast_step=true has no effect: trainer.extra.entropy_coef=0.01 adds the mean entropy",
    ),
    "reference that stays": (
        ["algorithm.ref_model_sync_steps=5"],
        "algorithm.ref_model_sync_steps=5 has no effect: the reference model stays as it is",
    ),
    "reference that does not exist": (
        ["algorithm=r1", "algorithm.beta=0"],
        "algorithm.sync_ref_model=true has no effect: algorithm.beta is 0",
    ),
    # 400 steps, and the run has 50.
    "reference that is refreshed too late": (
        ["algorithm=r1"],
        "algorithm.ref_model_sync_steps=400: the run ends at step 50, so the reference model is never refreshed",
    ),
    "entropy bonus that is fixed": (
        ["+trainer.extra.entropy_target=0.3"],
        "trainer.extra.entropy_target=0.3 has no effect: the entropy bonus is fixed",
    ),
    "half precision on a CPU": (
        ["launch.mixed_precision=fp16"],
        "launch.mixed_precision=fp16 has no effect on a CPU",
    ),
    "port of one process": (
        ["launch.main_process_port=29500"],
        "launch.main_process_port=29500 has no effect: one process meets no other",
    ),
    # 2 processes x 3 threads = 6 on 4 cores.
    "more threads than cores": (
        ["launch=ddp", "launch.threads_per_process=3"],
        "launch.num_processes=2 with 3 thread(s) each: 6 threads share 4 core(s)",
    ),
    "health that is off": (
        ["health=off", "health.rules.truncation.window=20"],
        "health.rules.truncation.window=20 has no effect: health.enabled is false",
    ),
    "probe that is off": (
        ["health.kl_probe.enabled=false", "health.kl_probe.completions=32"],
        "health.kl_probe.completions=32 has no effect: health.kl_probe.enabled is false",
    ),
    # 2 prompts x 8 completions = 16.
    "probe larger than a batch": (
        ["trainer.prompts_per_step=2", "health.kl_probe.completions=17"],
        "health.kl_probe.completions=17: one generated batch has 16",
    ),
    "punishment that does not count": (
        ["algorithm=dapo", "algorithm.overlong.weight=0"],
        "algorithm.overlong.weight=0: the punishment is logged and does not count",
    ),
    "components that are one": (
        ["algorithm=gdpo", "algorithm.dynamic_sampling.enabled=false", "reward=math_only"],
        "algorithm.multi_objective_aggregation=normalize_then_sum: the reward has one component",
    ),
    "checkpoints that are off": (
        ["trainer.checkpoint.enabled=false", "trainer.checkpoint.keep=3"],
        "trainer.checkpoint.keep=3 has no effect: trainer.checkpoint.enabled is false",
    ),
    "best of nothing": (
        ["trainer.checkpoint.best_metric=null", "trainer.checkpoint.best_is=lowest"],
        "trainer.checkpoint.best_is=lowest has no effect: trainer.checkpoint.best_metric is null",
    ),
    "window longer than the run": (
        ["health.rules.truncation.window=100"],
        "health.rules.truncation.window=100: the rule needs that many steps and the run has 50",
    ),
}


@pytest.mark.parametrize(("words", "start"), TOLD.values(), ids=TOLD.keys())
def test_setting_with_a_catch_is_told_in_one_line(words: list[str], start: str) -> None:
    (note,) = notes(*words)
    assert note.startswith(start)
    assert "\n" not in note
    assert ";" in note  # what to do, or where else to look


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm.epsilon=0.3", "algorithm.epsilon_high=0.3", "algorithm.updates_per_batch=2"],
        ["algorithm.epsilon=0.3", "algorithm.epsilon_high=0.3", "algorithm.num_iterations=2"],
        ["algorithm.loss_type=cispo", "algorithm.epsilon_high=5"],
        ["algorithm.loss_type=grpo", "algorithm.importance_sampling_level=sequence"],
        ["algorithm.loss_type=luspo", "algorithm.importance_sampling_level=sequence"],
        ["algorithm.loss_type=sapo", "algorithm.sapo_temperature_pos=1.02"],
        ["algorithm.loss_type=vespo", "algorithm.vespo_k_pos=1"],
        ["algorithm=r1", "trainer.max_steps=400"],
        ["algorithm.sync_ref_model=true", "algorithm.ref_model_sync_steps=5"],
        ["health.enabled=false", "health.kl_probe.completions=32"],  # a curve, and no rule
        ["algorithm.multi_objective_aggregation=normalize_then_sum"],
        ["algorithm.loss_type=bnpo", "trainer.fast_step=false"],
        ["algorithm.use_bias_correction_kl=true"],  # beta is 0.04
        ["trainer.warmup_steps=49"],
        ["trainer.max_completion_length=15"],
        ["dataset.max_operand=99", "model.priming.max_operand=99"],
        ["+trainer.extra.repetition_penalty=1.0"],
        ["+trainer.extra.min_p=null"],
        ["+trainer.extra.log_completions=true"],
        ["launch=ddp", "launch.main_process_port=29500"],
        ["launch.mixed_precision=bf16"],
        ["health.rules.truncation.window=50"],
        ["health=strict"],
    ],
)
def test_setting_that_acts_is_not_told(words: list[str]) -> None:
    assert notes(*words) == ()


def test_mask_that_leaves_nothing() -> None:
    """One token is the end or is truncated; it is also less than the 15 of an answer."""
    found = notes("algorithm=dapo", "trainer.max_completion_length=1")
    assert sum(note.startswith("trainer.max_completion_length=1: with algorithm.mask_trunc") for note in found) == 1
    assert not any("mask_trunc" in note for note in notes("algorithm=grpo", "trainer.max_completion_length=1"))


def test_local_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    words = ["model=local", f"model.path={tmp_path}"]
    assert notes(*words) == ()
    (note,) = notes(*words, "model.revision=main")
    assert note.startswith("model.revision=main has no effect: model.path is a folder")
    (note,) = notes(*words, "model.dtype=float16")
    assert note.startswith("model.dtype=float16: small gradients become 0")
    assert notes("model=local", "model.path=org/name", "model.revision=main") == ()  # a model of the hub


def test_correction_that_is_off() -> None:
    from grpo_exp.data.prompts import PromptData
    from grpo_exp.preflight.notes import notes as all_notes

    words = ["vllm=server", "vllm.importance_sampling_correction=false", "vllm.importance_sampling_clip_max=2"]
    settings = load.to_settings(load.compose(["tracker=none", *words]))
    (note,) = all_notes(settings, PromptData((), ()))
    assert note.startswith("vllm.importance_sampling_clip_max=2.0 has no effect: vllm.importance_sampling_correction")


def test_rows_left_out_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"prompt": f"{i}", "target": "1"} for i in range(50)] + [{"prompt": "", "target": "1"}] * 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = notes("dataset=jsonl", "~dataset.train_size", "+dataset.train_size=null", f"dataset.path={path}")
    assert found == ("dataset: 3 rows without a prompt are left out",)
