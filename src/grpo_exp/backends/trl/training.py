"""One training run with TRL, from settings to held-out accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback
from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.backends.trl.agreement import agree_over
from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.backends.trl.callbacks import FirstCallback, MetricsCallback, StopCallback
from grpo_exp.backends.trl.checkpointing import CheckpointingTrainer, Part
from grpo_exp.backends.trl.completion_recorder import CompletionRecorder
from grpo_exp.backends.trl.dynamic_sampling import DynamicSamplingTrainer, SamplingRules
from grpo_exp.backends.trl.fast_step import FastStepTrainer
from grpo_exp.backends.trl.held_out_run import EvaluationStoppedError, evaluate
from grpo_exp.backends.trl.kl_probe import KlProbe
from grpo_exp.backends.trl.online_curriculum import INDEX_COLUMN, CurriculumTrainer, OnlineCurriculum
from grpo_exp.backends.trl.prompt_order import easy_to_hard
from grpo_exp.backends.trl.reward_batch import RewardBatch
from grpo_exp.backends.trl.run_parts import RunParts, TrainingObserver
from grpo_exp.backends.trl.saving import add_checkpoints, saving, train
from grpo_exp.backends.trl.trainer import StepClock, TimedGRPOTrainer
from grpo_exp.backends.trl.vllm_engine import adapted_engine, prepare_engine
from grpo_exp.backends.trl.whole_saving import CheckpointPlan
from grpo_exp.data.prompts import PromptData, PromptRow, difficulty_of
from grpo_exp.errors import RunError
from grpo_exp.models.load import load_policy
from grpo_exp.models.lora import build_lora, name_base
from grpo_exp.rewards.components import build_components
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.fast_step import fast_step_fault
from grpo_exp.settings.run import RunSettings


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How far training came, and the held-out results."""

    steps: int
    stopped: bool
    evaluation: dict[str, dict[str, Any]] = field(default_factory=dict)


def run_training(
    settings: RunSettings,
    plan: BatchPlan,
    data: PromptData,
    observer: TrainingObserver,
    *,
    model_dir: Path,
    use_cpu: bool,
    checkpoints: CheckpointPlan | None = None,
) -> TrainingOutcome:
    """Load, evaluate, train, save, evaluate; on every process of the run.

    A stop ends training after the step, and an evaluation before its next batch: it is then absent from the outcome.
    The model is saved before the last evaluation, so that a stop there does not cost it. With a checkpoint to go on
    from, what was done before it is not done again: priming, the evaluation before training, its steps.

    Args:
        settings: The run.
        plan: Its solved batch arithmetic.
        data: Rows to train and to evaluate on.
        observer: Is told what happens.
        model_dir: Where the trained model goes.
        use_cpu: Train on the CPU.
        checkpoints: Where to save them, and the one to go on from; None saves none.
    """
    resume = None if checkpoints is None else checkpoints.resume
    evaluation = {} if resume is None else dict(resume.manifest.facts["evaluation"])
    parts = RunParts(settings, plan, data, build_components(settings.reward), observer, checkpoints, evaluation)
    arguments = build_arguments(settings, plan, output_dir=model_dir.parent, use_cpu=use_cpu)
    clock = StepClock()
    trainer = _build_trainer(parts, arguments, clock)
    _check_strategy(trainer, settings)
    stop = _add_callbacks(parts, trainer, clock)
    try:
        if settings.trainer.eval_before and resume is None:
            _evaluate_before(parts, trainer)
        observer.on_phase("training", 0 if resume is None else resume.step, settings.trainer.max_steps)
        train(trainer, resume, max_steps=settings.trainer.max_steps)
        if not stop.stopped:
            if settings.trainer.save_model:
                observer.on_phase("saving the model")
                trainer.save_model(str(model_dir))
            evaluation["after"] = evaluate(parts, trainer, "after")
    except EvaluationStoppedError:
        return TrainingOutcome(trainer.state.global_step, True, evaluation)
    return TrainingOutcome(trainer.state.global_step, stop.stopped, evaluation)


def _evaluate_before(parts: RunParts, trainer: TimedGRPOTrainer) -> None:
    """Measure the policy as it begins: now, or, where DeepSpeed or FSDP must set it up first, as training begins."""

    def measure() -> None:
        parts.evaluation["before"] = evaluate(parts, trainer, "before")

    def measure_and_train() -> None:
        measure()
        parts.observer.on_phase("training", 0, parts.settings.trainer.max_steps)

    if parts.settings.launch.strategy == "ddp":
        measure()
    else:
        trainer.add_callback(FirstCallback(measure_and_train))


def _check_strategy(trainer: TimedGRPOTrainer, settings: RunSettings) -> None:
    """Look whether accelerate does what it was started for: on some devices it silently does something else."""
    strategy = settings.launch.strategy
    wanted = {"ddp": (False, False), "zero2": (True, False), "zero3": (True, False)}.get(strategy, (False, True))
    found = (bool(trainer.is_deepspeed_enabled), bool(trainer.is_fsdp_enabled))
    if found != wanted:
        kind = trainer.accelerator.distributed_type
        raise RunError(
            f"launch.strategy={strategy}: accelerate came up as {kind}, so that the model would not be shared as asked "
            "for; use launch=ddp, or look into accelerate.json in the run's logs"
        )


def _add_callbacks(parts: RunParts, trainer: TimedGRPOTrainer, clock: StepClock) -> StopCallback:
    """Add what happens between steps; each looks at what those before it did."""
    any_process = agree_over(trainer.accelerator)
    stop = StopCallback(parts.observer.wants_stop, any_process)
    trainer.add_callback(MetricsCallback(clock, parts.observer.on_metrics))
    trainer.add_callback(stop)  # behind the metrics: a step that is broken is the last one
    add_checkpoints(parts, trainer, any_process)
    _add_recorder(trainer, parts)
    _add_kl_probe(trainer, parts.settings)  # behind the clock, which is read when the step ends
    return stop


def _build_trainer(parts: RunParts, arguments: GRPOConfig, clock: StepClock) -> TimedGRPOTrainer:
    settings, observer = parts.settings, parts.observer
    with arguments.main_process_first(desc="building the model"):
        model, tokenizer = load_policy(
            settings.model, on_priming_step=lambda step, loss: tell_priming(observer, settings, step)
        )
    names = [component.name for component in parts.components]
    is_main = arguments.process_index == 0
    prepare_engine(settings, arguments, tokenizer, parts.data.train, is_main_process=is_main)
    with adapted_engine(settings):
        trainer = _trainer_class(settings, saves=parts.checkpoints is not None)(
            **_rules(settings, names),
            **saving(parts),
            **_prompt_order(parts),
            rewards=RewardBatch(parts.components, list(parts.data.train[0].columns)),
            primary=names.index(settings.reward.primary),
            clock=clock,
            model=model,
            args=arguments,
            train_dataset=to_dataset(parts.data.train, numbered=settings.dataset.curriculum.order == "online"),
            processing_class=tokenizer,
            peft_config=build_lora(settings.model.lora),
        )
    name_base(trainer.model, settings.model)
    if isinstance(trainer, DynamicSamplingTrainer) and isinstance(trainer, CheckpointingTrainer):
        trainer.parts["dynamic_sampling"] = Part(trainer.sampling_state, trainer.load_sampling_state)
    if isinstance(trainer, CurriculumTrainer):
        _join_curriculum(trainer)
    if isinstance(trainer, FastStepTrainer) and trainer.fast_step_fault is not None:
        fault = trainer.fast_step_fault
        observer.on_note(f"trainer.fast_step=true has no effect: {fault}; trainer.fast_step=false leaves this line out")
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def _prompt_order(parts: RunParts) -> dict[str, Any]:
    """Return what the trainer is told about the order of the prompts, nothing where they are shuffled."""
    curriculum, rows = parts.settings.dataset.curriculum, parts.data.train
    if curriculum.order == "easy_to_hard":
        return {"order": easy_to_hard([difficulty_of(row) for row in rows], curriculum.stages)}
    if curriculum.order == "online":
        return {"curriculum": OnlineCurriculum([row.pass_rate for row in rows], parts.settings.seed, curriculum)}
    return {}


def _join_curriculum(trainer: CurriculumTrainer) -> None:
    """Let the curriculum be asked by dynamic sampling, too, and saved with the rest."""
    curriculum = trainer.curriculum
    if isinstance(trainer, DynamicSamplingTrainer):
        trainer.draw_from(curriculum)
    if isinstance(trainer, CheckpointingTrainer):
        trainer.parts["curriculum"] = Part(curriculum.state, curriculum.load_state)


def _add_recorder(trainer: TimedGRPOTrainer, parts: RunParts) -> None:
    algorithm = parts.settings.algorithm
    trainer.completions = CompletionRecorder(
        trainer,
        parts.settings.trainer.completions,
        steps_per_batch=algorithm.updates_per_batch * algorithm.num_iterations,
        on_rows=parts.observer.on_completions,
    )


def _add_kl_probe(trainer: TimedGRPOTrainer, settings: RunSettings) -> None:
    probe = settings.health.kl_probe
    if probe.enabled:
        trainer.kl_probe = KlProbe(trainer, completions=probe.completions, every_steps=probe.every_steps)
        trainer.add_callback(trainer.kl_probe)
        if isinstance(trainer, CheckpointingTrainer):
            trainer.parts["kl_probe"] = Part(trainer.kl_probe.state_dict, trainer.kl_probe.load_state_dict)


def _trainer_class(settings: RunSettings, *, saves: bool) -> type[TimedGRPOTrainer]:
    """Return the trainer of these settings: each capability is a class of its own, and they know nothing of each other.

    The fast step comes first: it lays out what the others made.
    """
    is_fast = settings.trainer.fast_step and fast_step_fault(settings) is None
    parts: list[type[TimedGRPOTrainer]] = [FastStepTrainer] if is_fast else []
    parts += [DynamicSamplingTrainer] if settings.algorithm.dynamic_sampling.enabled else []
    parts += [CurriculumTrainer] if settings.dataset.curriculum.order == "online" else []
    parts += [CheckpointingTrainer] if saves else []
    return type("PolicyTrainer", tuple(parts) or (TimedGRPOTrainer,), {})


def _rules(settings: RunSettings, names: Sequence[str]) -> dict[str, Any]:
    """Return what dynamic sampling is told, nothing where it is off."""
    sampling = settings.algorithm.dynamic_sampling
    if not sampling.enabled:
        return {}
    metric = names.index(sampling.metric or settings.reward.primary)
    return {"rules": SamplingRules(metric, sampling.max_rounds, sampling.on_exhausted)}


def tell_priming(observer: TrainingObserver, settings: RunSettings, step: int) -> None:
    """Tell how far the priming of the built-in policy has come."""
    assert settings.model.kind == "tiny"  # no other model is primed
    observer.on_phase("priming", step, settings.model.priming.steps)


def to_dataset(rows: Sequence[PromptRow], *, numbered: bool = False) -> Dataset:
    """Return rows as a `datasets.Dataset`; where one target is a list of spellings, all of them are.

    The rows' further columns are JSON text. With `numbered` there is a column with the number of each row.
    """
    plain = [{**row.to_dict(), **{name: json.dumps(value) for name, value in row.columns.items()}} for row in rows]
    if any(isinstance(row["target"], list) for row in plain):
        for row in plain:
            row["target"] = row["target"] if isinstance(row["target"], list) else [row["target"]]
    if numbered:
        plain = [{**row, INDEX_COLUMN: str(index)} for index, row in enumerate(plain)]
    return Dataset.from_list(plain)
