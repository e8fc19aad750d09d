"""Supervised fine-tuning with TRL, from settings to held-out accuracy: the same model, data and reward as GRPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from datasets import Dataset
from transformers import GenerationConfig, PreTrainedTokenizerBase, PrinterCallback, ProgressCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from grpo_exp.backends.trl.agreement import agree_over
from grpo_exp.backends.trl.arguments import CHECKPOINTING, optimizer_fields
from grpo_exp.backends.trl.callbacks import MetricsCallback, StopCallback
from grpo_exp.backends.trl.held_out_run import EvaluationStoppedError, evaluate
from grpo_exp.backends.trl.run_parts import RunParts, TrainingObserver
from grpo_exp.backends.trl.saving import add_checkpoints, saving, train
from grpo_exp.backends.trl.trainer import StepClock
from grpo_exp.backends.trl.training import TrainingOutcome, tell_priming
from grpo_exp.backends.trl.whole_saving import CheckpointPlan, WholeSavingTrainer
from grpo_exp.data.examples import Example, build_examples
from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import DataError
from grpo_exp.models.example_tokens import encode_example
from grpo_exp.models.load import load_policy
from grpo_exp.models.lora import build_lora
from grpo_exp.rewards.components import build_components
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings


def run_sft(
    settings: RunSettings,
    plan: BatchPlan,
    data: PromptData,
    observer: TrainingObserver,
    *,
    model_dir: Path,
    use_cpu: bool,
    checkpoints: CheckpointPlan | None = None,
) -> TrainingOutcome:
    """Load, evaluate, train on worked examples, save, evaluate; on every process of the run.

    A stop ends training after the step, and an evaluation before its next batch, as in a run of GRPO; with a checkpoint
    to go on from, what was done before it is not done again.

    Args:
        settings: The run, with `sft`.
        plan: Its solved batch arithmetic.
        data: Rows to make examples of, and rows to evaluate on.
        observer: Is told what happens.
        model_dir: Where the trained model goes.
        use_cpu: Train on the CPU.
        checkpoints: Where to save them, and the one to go on from; None saves none.

    Raises:
        DataError: No row makes an example, or all of them are too long.
    """
    resume = None if checkpoints is None else checkpoints.resume
    evaluation = {} if resume is None else dict(resume.manifest.facts["evaluation"])
    parts = RunParts(settings, plan, data, build_components(settings.reward), observer, checkpoints, evaluation)
    arguments = build_sft_arguments(settings, plan, output_dir=model_dir.parent, use_cpu=use_cpu)
    clock = StepClock()
    trainer = _build_trainer(parts, arguments)
    sampling = _sampling_config(settings, trainer)
    any_process = agree_over(trainer.accelerator)
    stop = StopCallback(observer.wants_stop, any_process)
    trainer.add_callback(MetricsCallback(clock, observer.on_metrics))
    trainer.add_callback(stop)
    add_checkpoints(parts, trainer, any_process)
    try:
        if settings.trainer.eval_before and resume is None:
            evaluation["before"] = evaluate(parts, trainer, "before", sampling=sampling)
        observer.on_phase("training", 0 if resume is None else resume.step, settings.trainer.max_steps)
        train(trainer, resume, max_steps=settings.trainer.max_steps)
        if not stop.stopped:
            if settings.trainer.save_model:
                observer.on_phase("saving the model")
                trainer.save_model(str(model_dir))
            evaluation["after"] = evaluate(parts, trainer, "after", sampling=sampling)
    except EvaluationStoppedError:
        return TrainingOutcome(trainer.state.global_step, True, evaluation)
    return TrainingOutcome(trainer.state.global_step, stop.stopped, evaluation)


class CheckpointingSFTTrainer(WholeSavingTrainer, SFTTrainer):
    """SFTTrainer with whole checkpoints: it counts tokens over all steps, which a stock one forgets."""

    def _read_process_state(self) -> dict[str, Any]:
        return {"tokens": self._total_train_tokens}

    def _put_process_state(self, state: dict[str, Any]) -> None:
        self._total_train_tokens = state["tokens"]


def build_sft_arguments(settings: RunSettings, plan: BatchPlan, *, output_dir: Path, use_cpu: bool) -> SFTConfig:
    """Build TRL's arguments: optimizer and batch as in GRPO, the loss on completions alone."""
    assert settings.sft is not None
    fields: dict[str, Any] = {
        **optimizer_fields(settings),
        CHECKPOINTING: settings.trainer.gradient_checkpointing,
    }
    return SFTConfig(
        **fields,
        output_dir=str(output_dir),
        per_device_train_batch_size=plan.per_device_train_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        completion_only_loss=True,
        max_length=None,  # long examples are left out, not cut
        packing=False,
        seed=settings.seed,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        push_to_hub=False,
        ddp_find_unused_parameters=False,
        use_cpu=use_cpu,
        bf16=settings.launch.mixed_precision == "bf16",
        fp16=settings.launch.mixed_precision == "fp16",
    )


def encode_examples(
    tokenizer: PreTrainedTokenizerBase, examples: list[Example], max_length: int | None
) -> tuple[Dataset, int]:
    """Return examples as tokens with a mask over the completion, and how many were too long.

    Raises:
        DataError: None is short enough.
    """
    rows: list[dict[str, list[int]]] = []
    for example in examples:
        prompt, completion = encode_example(tokenizer, example.prompt, example.completion)
        if max_length is None or len(prompt) + len(completion) <= max_length:
            mask = [0] * len(prompt) + [1] * len(completion)
            rows.append({"input_ids": prompt + completion, "completion_mask": mask})
    if not rows:
        raise DataError(
            f"sft.max_length={max_length}: all of the {len(examples)} examples have more tokens; raise it, or use "
            "shorter solutions"
        )
    return Dataset.from_list(rows), len(examples) - len(rows)


def _build_trainer(parts: RunParts, arguments: SFTConfig) -> SFTTrainer:
    settings, observer = parts.settings, parts.observer
    assert settings.sft is not None
    with arguments.main_process_first(desc="building the model"):
        model, tokenizer = load_policy(
            settings.model, on_priming_step=lambda step, loss: tell_priming(observer, settings, step)
        )
    examples = build_examples(parts.data, settings.sft)
    rows, too_long = encode_examples(tokenizer, examples, settings.sft.max_length)
    observer.on_note(
        f"sft: {len(rows)} worked examples; the first completion is {examples[0].completion[:200]!r}"
        + (f"; {too_long} with more than {settings.sft.max_length} tokens are left out" if too_long else "")
    )
    trainer_class = SFTTrainer if parts.checkpoints is None else CheckpointingSFTTrainer
    trainer = trainer_class(
        **saving(parts),
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=build_lora(settings.model.lora),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def _sampling_config(settings: RunSettings, trainer: SFTTrainer) -> GenerationConfig:
    """Return what held-out completions are sampled with: as GRPO would sample them."""
    tokenizer = cast(PreTrainedTokenizerBase, trainer.processing_class)
    own = cast(Any, trainer.accelerator.unwrap_model(trainer.model)).generation_config.eos_token_id
    ends = own if isinstance(own, list) else [own]
    return GenerationConfig(
        max_new_tokens=settings.trainer.max_completion_length,
        do_sample=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(dict.fromkeys(e for e in (*ends, tokenizer.eos_token_id) if e is not None)),
        temperature=settings.algorithm.temperature,
        top_p=settings.algorithm.top_p,
        top_k=0,
        disable_compile=True,
    )
