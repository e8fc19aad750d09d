"""Held-out accuracy before and after training, with the weights as they are then."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from trl.distributed import DistributedBackend
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.sft_trainer import SFTTrainer

from grpo_exp.backends.trl.agreement import agree_over
from grpo_exp.backends.trl.generation import SamplingPlan, build_generate, sampling_config
from grpo_exp.backends.trl.run_parts import RunParts
from grpo_exp.backends.trl.trainer import TimedGRPOTrainer
from grpo_exp.evaluation.completion_rows import TableInfo, held_out_rows, limited, most_telling
from grpo_exp.evaluation.held_out import HeldOutResult, evaluate_held_out
from grpo_exp.settings.run import RunSettings


class EvaluationStoppedError(Exception):
    """The processes agreed to stop between two batches of a held-out evaluation."""


def evaluate(
    parts: RunParts,
    trainer: TimedGRPOTrainer | SFTTrainer,
    when: str,
    *,
    sampling: GenerationConfig | None = None,
) -> dict[str, Any]:
    """Sample, score, hand on what was found, and return its summary; all processes take part.

    Args:
        parts: The run.
        trainer: Whose model is measured.
        when: "before" or "after" training.
        sampling: What completions are sampled with; None is what the trainer samples with.

    Raises:
        EvaluationStoppedError: The processes agreed to stop.
    """
    settings, any_process = parts.settings, agree_over(trainer.accelerator)

    def stop_if_wanted() -> None:
        if any_process(parts.observer.wants_stop()):
            raise EvaluationStoppedError

    parts.observer.on_phase(f"held-out accuracy {when} training")
    digest = hashlib.sha256(f"{settings.seed} held-out".encode()).digest()
    seed, together = int.from_bytes(digest[:4], "big"), settings.launch.shards_weights
    with _weights(trainer, settings) as model:
        generate = build_generate(
            model,
            _tokenizer_of(trainer),
            sampling or sampling_config(cast(TimedGRPOTrainer, trainer)),
            trainer.accelerator,
            SamplingPlan(settings.model.max_micro_batch, seed, stop_if_wanted, together=together),
        )
        result: HeldOutResult = evaluate_held_out(
            parts.data.evaluation,
            generate,
            parts.components,
            primary=settings.reward.primary,
            num_samples=settings.trainer.eval_samples,
        )
    if trainer.accelerator.is_main_process:
        _hand_on_samples(parts, result, step=trainer.state.global_step)
        parts.observer.on_metrics(trainer.state.global_step, _to_eval_metrics(result.summary))
    return result.summary


@contextmanager
def _weights(trainer: TimedGRPOTrainer | SFTTrainer, settings: RunSettings) -> Iterator[PreTrainedModel]:
    """Return the model to generate with; where its weights are cut up, gathered as far as TRL gathers them itself."""
    if not settings.launch.shards_weights:
        yield trainer.accelerator.unwrap_model(trainer.model)
        return
    wrapped: Any = trainer.model_wrapped
    with (
        unwrap_model_for_generation(wrapped, trainer.accelerator) as model,
        DistributedBackend(trainer.accelerator).summon_full_params(wrapped, recurse=False),
    ):
        yield cast(PreTrainedModel, model)


def _hand_on_samples(parts: RunParts, result: HeldOutResult, *, step: int) -> None:
    tables = parts.settings.trainer.completions
    if tables.eval_max_rows == 0:
        return
    rows = held_out_rows(
        result.samples,
        num_samples=parts.settings.trainer.eval_samples,
        weights={component.name: component.weight_at(step) for component in parts.components},
        primary=parts.settings.reward.primary,
    )
    chosen = most_telling(rows, max_rows=tables.eval_max_rows)
    # With all their columns: whoever changes the reward scores held-out completions again.
    kept = [limited(row, tables.max_characters, keep_columns=True) for row in chosen]
    parts.observer.on_completions(TableInfo("eval", step, len(rows)), kept)


def _tokenizer_of(trainer: TimedGRPOTrainer | SFTTrainer) -> PreTrainedTokenizerBase:
    tokenizer = trainer.processing_class
    assert isinstance(tokenizer, PreTrainedTokenizerBase)  # load_policy returned it
    return tokenizer


def _to_eval_metrics(summary: dict[str, Any]) -> dict[str, float]:
    named = {
        "eval/accuracy": summary["accuracy"],
        "eval/greedy_accuracy": summary["greedy_accuracy"],
        "eval/completion_length/mean": summary["completion_length"],
        "eval/completion_length/truncated_fraction": summary["truncated_fraction"],
        **{f"eval/rewards/{name}/mean": value for name, value in summary["rewards"].items()},
        **{f"eval/behaviours/{name}_rate": value for name, value in summary["behaviours"].items()},
    }
    return {name: value for name, value in named.items() if value is not None}
