"""Choose and build what samples an evaluation."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from grpo_exp.errors import ConfigError
from grpo_exp.evaluation.held_out import Generate
from grpo_exp.models.load import load_policy
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.model import ModelSettings


def choose_engine(settings: EvaluationSettings) -> str:
    """Return `vllm` or `transformers`.

    Raises:
        ConfigError: vLLM is asked for and not installed.
    """
    is_installed = importlib.util.find_spec("vllm") is not None
    if settings.engine == "vllm" and not is_installed:
        raise ConfigError("engine=vllm: vLLM is not installed here; install the extra vllm, or use engine=transformers")
    if settings.engine != "auto":
        return settings.engine
    return "vllm" if is_installed and torch.cuda.is_available() and settings.device != "cpu" else "transformers"


def build_engine(
    settings: EvaluationSettings, model: ModelSettings, *, on_batch: Callable[[int], None] | None = None
) -> Generate:
    """Load a model and return what samples from it.

    Args:
        settings: How it is sampled.
        model: Which one.
        on_batch: Called with the number of completions after each batch of transformers.

    Raises:
        ConfigError: The model cannot be loaded, or its context is shorter than the completions.
    """
    gc.collect()  # the engine of an earlier checkpoint, whose memory this one needs
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if choose_engine(settings) == "vllm":
        from grpo_exp.backends.sampling.vllm_engine import build_vllm_engine

        return build_vllm_engine(settings, model)
    from grpo_exp.backends.sampling.transformers_engine import build_transformers_engine

    loaded, tokenizer = load_policy(model, on_priming_step=lambda step, loss: None)
    check_context(loaded.config, settings.max_completion_length)
    return build_transformers_engine(settings, loaded, tokenizer, on_batch=on_batch)


def check_context(config: Any, max_completion_length: int) -> None:
    """Refuse completions that the model has no positions for.

    Raises:
        ConfigError: They are longer than its context.
    """
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and max_completion_length >= context:
        raise ConfigError(
            f"max_completion_length={max_completion_length}: the model has {context} positions for prompt and "
            f"completion together; use max_completion_length={context // 2} or less"
        )
