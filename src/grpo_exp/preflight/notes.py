"""What a user should know and need not act on: settings without effect here, and values known to go wrong.

What TRL does with a setting was read in its GRPOTrainer (`_compute_loss`, `_generate_and_score_completions`).
"""

from __future__ import annotations

import os

from grpo_exp import devices
from grpo_exp.data.prompts import PromptData
from grpo_exp.preflight.algorithm_notes import algorithm_notes
from grpo_exp.preflight.dataset_notes import dataset_notes
from grpo_exp.preflight.defaults import changed
from grpo_exp.preflight.extra_notes import extra_notes
from grpo_exp.preflight.launch_faults import launch_notes
from grpo_exp.preflight.model_notes import model_notes
from grpo_exp.preflight.sampling import sampling_notes
from grpo_exp.preflight.shown_formats import other_place_note
from grpo_exp.preflight.tiny_text import longest_answer
from grpo_exp.preflight.vllm_notes import vllm_notes
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.fast_step import fast_step_fault
from grpo_exp.settings.run import RunSettings


def notes(settings: RunSettings, data: PromptData, *, runs_here: bool = True) -> list[str]:
    """Return one line for each: the value, why, and what to do."""
    on_cpu = devices.will_use_cpu(settings.launch.device, runs_here=runs_here)
    if settings.sft is not None:  # nothing is generated, rewarded or clipped
        return [
            *_optimizer_notes(settings),
            *model_notes(settings, on_cpu=on_cpu),
            *_launch_notes(settings, on_cpu=on_cpu, runs_here=runs_here),
            *dataset_notes(settings, data),
        ]
    return [
        *algorithm_notes(settings),
        *sampling_notes(settings),
        *_reward_notes(settings),
        *other_place_note(settings),
        *_optimizer_notes(settings),
        *_checkpoint_notes(settings),
        *_fast_step_notes(settings),
        *extra_notes(settings),
        *_tiny_notes(settings),
        *model_notes(settings, on_cpu=on_cpu),
        *vllm_notes(settings),
        *_launch_notes(settings, on_cpu=on_cpu, runs_here=runs_here),
        *_health_notes(settings),
        *dataset_notes(settings, data),
    ]


def _reward_notes(settings: RunSettings) -> list[str]:
    name = settings.reward.primary
    weight = settings.reward.components[name].weight
    if weight > 0:
        return []
    effect = "is not rewarded" if weight == 0 else "is punished"
    return [
        f"reward.components.{name}.weight={weight:g}: the component that accuracy is measured by {effect}; give it a "
        "positive weight, or judge another one with reward.primary"
    ]


def _optimizer_notes(settings: RunSettings) -> list[str]:
    trainer, found = settings.trainer, []
    if trainer.warmup_steps >= trainer.max_steps:
        found.append(
            f"trainer.warmup_steps={trainer.warmup_steps}: the run ends at step {trainer.max_steps}, before "
            "trainer.learning_rate is reached; lower it"
        )
    if trainer.adam_beta1**2 >= trainer.adam_beta2**0.5:
        found.append(
            f"trainer.adam_beta1={trainer.adam_beta1}: Adam wants beta1^2 below the root of beta2 "
            f"({trainer.adam_beta2**0.5:.3g}) to converge (arXiv:1412.6980, theorem 4.1); 0.9 and 0.999 are usual"
        )
    return found


def _checkpoint_notes(settings: RunSettings) -> list[str]:
    checkpoint = settings.trainer.checkpoint
    if not checkpoint.enabled:
        return [
            f"trainer.checkpoint.{name}={getattr(checkpoint, name)} has no effect: trainer.checkpoint.enabled is "
            "false; leave it out, or set that true"
            for name in changed(checkpoint, "every_steps", "keep", "best_metric", "best_is")
        ]
    if checkpoint.best_metric is None and changed(checkpoint, "best_is"):
        return [
            f"trainer.checkpoint.best_is={checkpoint.best_is} has no effect: trainer.checkpoint.best_metric is null; "
            "leave it out, or name a curve"
        ]
    return []


def _fast_step_notes(settings: RunSettings) -> list[str]:
    fault = fast_step_fault(settings)
    if not settings.trainer.fast_step or fault is None:
        return []
    return [f"trainer.fast_step=true has no effect: {fault}; trainer.fast_step=false leaves this line out"]


def _tiny_notes(settings: RunSettings) -> list[str]:
    model, trainer = settings.model, settings.trainer
    if model.kind != "tiny":
        return []
    found = []
    if trainer.learning_rate > 3e-4 and not model.lora.enabled:
        found.append(
            f"trainer.learning_rate={trainer.learning_rate:g} on model=tiny: 5e-4 is known to collapse; 1e-4 is the "
            "default"
        )
    if trainer.gradient_checkpointing:
        found.append(
            "trainer.gradient_checkpointing=true on model=tiny: costs a third more time and saves memory that so small "
            "a model does not need; leave it out"
        )
    return found + _primed_notes(settings)


def _primed_notes(settings: RunSettings) -> list[str]:
    """Tell what the built-in policy never saw while it was primed."""
    model, dataset, limit = settings.model, settings.dataset, settings.trainer.max_completion_length
    if model.kind != "tiny" or dataset.kind != "arithmetic":
        return []
    found = []
    if dataset.max_operand > model.priming.max_operand:
        found.append(
            f"dataset.max_operand={dataset.max_operand}: the built-in policy is primed on operands to "
            f"{model.priming.max_operand}, so larger ones are hardly ever right; "
            f"model.priming.max_operand={dataset.max_operand} primes it on them"
        )
    if "-" in dataset.operations:
        found.append(
            "dataset.operations with '-': the built-in policy is primed on sums only, so differences are hardly ever "
            "right; leave '-' out"
        )
    needed = longest_answer(dataset.max_operand)
    if limit < needed:
        found.append(
            f"trainer.max_completion_length={limit}: the longest right answer takes {needed} tokens; use "
            f"{needed} or more"
        )
    return found


def _launch_notes(settings: RunSettings, *, on_cpu: bool, runs_here: bool) -> list[str]:
    launch, cores = settings.launch, len(os.sched_getaffinity(0))
    found: list[str] = []
    if on_cpu and launch.mixed_precision == "fp16":
        found.append(
            "launch.mixed_precision=fp16 has no effect on a CPU: accelerate leaves the forward pass in the type of the "
            "weights there; use bf16, or no"
        )
    if launch.main_process_port is not None and launch.num_processes == 1:
        found.append(
            f"launch.main_process_port={launch.main_process_port} has no effect: one process meets no other; leave it "
            "out"
        )
    found += launch_notes(settings, on_cpu=on_cpu)
    threads = (launch.threads_per_process or 1) * launch.num_processes
    if on_cpu and runs_here and threads > cores:
        found.append(
            f"launch.num_processes={launch.num_processes} with {launch.threads_per_process or 1} thread(s) each: "
            f"{threads} threads share {cores} core(s) and wait for each other; fewer are faster"
        )
    return found


def _health_notes(settings: RunSettings) -> list[str]:
    health, steps = settings.health, settings.trainer.max_steps
    found = []
    if not health.kl_probe.enabled:
        found += [
            f"health.kl_probe.{name}={getattr(health.kl_probe, name)} has no effect: health.kl_probe.enabled is false; "
            "leave it out, or set that true"
            for name in changed(health.kl_probe, "completions", "every_steps")
        ]
    elif changed(health.kl_probe, "completions") and health.kl_probe.completions > (
        generated := solve_batch(settings).completions_per_generation
    ):
        found.append(
            f"health.kl_probe.completions={health.kl_probe.completions}: one generated batch has {generated}, and the "
            "probe keeps those; lower it"
        )
    rules = {
        f"health.rules.{name}.{field}": getattr(rule, field)
        for name, rule in health.rules
        for field in changed(rule, *type(rule).model_fields)
    }
    if not health.enabled:
        found += [
            f"{path}={value} has no effect: health.enabled is false; leave it out, or use health=default"
            for path, value in rules.items()
        ]
        return found
    return found + [
        f"{path}={value}: the rule needs that many steps and the run has {steps}, so it will find nothing; lower it"
        for path, value in rules.items()
        if path.endswith(".window") and value > steps
    ]
