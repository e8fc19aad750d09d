"""Samples with transformers, on one device or on the processes of `accelerate launch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from accelerate import Accelerator
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from grpo_exp.backends.trl.generation import SamplingPlan, build_generate
from grpo_exp.evaluation.held_out import Generate
from grpo_exp.settings.evaluation import EvaluationSettings


def build_transformers_engine(
    settings: EvaluationSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    on_batch: Callable[[int], None] | None = None,
) -> Generate:
    """Return what samples from a model.

    Args:
        settings: How it is sampled.
        model: The policy.
        tokenizer: Its tokenizer, with a chat template.
        on_batch: Called with the number of completions before each batch.
    """
    accelerator = Accelerator(cpu=settings.device == "cpu")
    model.to(accelerator.device)  # pyright: ignore[reportArgumentType]
    done = 0

    def before_batch() -> None:
        nonlocal done
        if on_batch is not None:
            on_batch(done)
        done += settings.batch_size

    plan = SamplingPlan(settings.batch_size, settings.seed, before_batch)
    return build_generate(model, tokenizer, _config(settings, model, tokenizer), accelerator, plan)


def _config(
    settings: EvaluationSettings, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> GenerationConfig:
    own = None if model.generation_config is None else model.generation_config.eos_token_id
    ends = {
        cast(int, end)
        for end in [*(own if isinstance(own, list) else [own]), tokenizer.eos_token_id]
        if end is not None
    }
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return GenerationConfig(
        max_new_tokens=settings.max_completion_length,
        do_sample=True,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,  # transformers' own default would cut to 50
        pad_token_id=pad,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=sorted(ends),
        disable_compile=True,
    )
