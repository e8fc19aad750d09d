"""Load the policy and its tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from grpo_exp.errors import ConfigError
from grpo_exp.models.tiny import load_tiny
from grpo_exp.settings.model import LocalModel, ModelSettings

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def quiet_libraries() -> None:
    """Leave warnings of transformers and drop its progress bars: progress is shown by us."""
    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_progress_bar()


def load_policy(
    settings: ModelSettings, *, on_priming_step: Callable[[int, float], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer.

    Args:
        settings: Which model.
        on_priming_step: Called while the built-in policy is primed on first use.

    Raises:
        ConfigError: The folder holds no model, or the tokenizer has no chat template.
    """
    if settings.kind == "tiny":
        return load_tiny(settings, on_step=on_priming_step)
    return _load_local(settings)


def _load_local(settings: LocalModel) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    assert settings.path is not None  # LocalModel refuses a null path
    options = {"revision": settings.revision, "trust_remote_code": settings.trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.path, padding_side="left", **options)
        model = AutoModelForCausalLM.from_pretrained(
            settings.path,
            dtype=_DTYPES[settings.dtype],
            attn_implementation=settings.attn_implementation,
            **options,
        )
    except Exception as error:  # files of others: a broken one raises KeyError, TypeError, SafetensorError ...
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"model.path={settings.path}: cannot be loaded ({why}); give a folder written "
            "by save_pretrained, with config.json, weights and tokenizer"
        ) from error
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"model.path={settings.path}: its tokenizer has no chat template, so prompts cannot be written; "
            "add chat_template.jinja to the folder"
        )
    return model, tokenizer
