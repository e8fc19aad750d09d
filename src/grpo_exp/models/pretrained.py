"""Load a model and its tokenizer from a folder, with the types, the kernels and the template of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from grpo_exp.errors import ConfigError
from grpo_exp.models.chat_template import set_template
from grpo_exp.settings.model import PretrainedModel

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_pretrained(
    settings: PretrainedModel, folder: Path, *, name: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer.

    Args:
        settings: Types, kernels, template.
        folder: Where config.json, weights and tokenizer lie.
        name: How the user wrote the model, for messages.

    Raises:
        ConfigError: The folder holds no model, or there is no chat template.
    """
    tokenizer = load_tokenizer_from(settings, folder, name=name)
    with _told(name):
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=_DTYPES[settings.weights_dtype],
            attn_implementation=settings.attn_implementation,
            **_quantization(settings),
            trust_remote_code=settings.trust_remote_code,
        )
    return model, tokenizer


def load_tokenizer_from(settings: PretrainedModel, folder: Path, *, name: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder, with the chat template that the settings make of its own.

    Raises:
        ConfigError: The folder holds none, or there is no chat template.
    """
    with _told(name):
        tokenizer = AutoTokenizer.from_pretrained(
            folder, padding_side="left", trust_remote_code=settings.trust_remote_code
        )
    if tokenizer.pad_token is None:  # Llama 3.2 has none; TRL takes the end token, and only while it builds a trainer
        tokenizer.pad_token = tokenizer.eos_token
    set_template(tokenizer, settings, name=name)
    return tokenizer


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say of what somebody else's files raise which model they belong to."""
    try:
        yield
    except Exception as error:  # a broken one raises KeyError, TypeError, SafetensorError ...
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"{name}: cannot be loaded ({why}); give a folder written "
            "by save_pretrained, with config.json, weights and tokenizer"
        ) from error


def _quantization(settings: PretrainedModel) -> dict[str, Any]:
    """Return how the frozen weights are held in 4 bits, nothing where they are not."""
    if not settings.lora.is_quantized:
        return {}
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=settings.lora.quantization,
        bnb_4bit_use_double_quant=settings.lora.double_quantization,
        bnb_4bit_compute_dtype=_DTYPES[settings.weights_dtype],
    )
    return {"quantization_config": quantization}
