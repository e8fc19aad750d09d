"""What the files of a model tell without loading it: its folder, its config.json, its shape, how far it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_exp.hub_cache import cached_snapshot
from grpo_exp.preflight.tiny_text import NUM_TOKENS
from grpo_exp.settings.architecture import Architecture, from_model_config
from grpo_exp.settings.model import HubModel, LocalModel, ModelSettings, TinyModel


def read_config(folder: Path) -> dict[str, Any] | None:
    """Return the content of `config.json`, or None where there is none that can be read."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # told by the model faults
    return content if isinstance(content, dict) else None


def model_config(settings: ModelSettings) -> dict[str, Any] | None:
    """Return the config.json of a model in a folder or in the hub's cache; None where there is none here."""
    if not isinstance(settings, LocalModel | HubModel) or settings.path is None:
        return None
    folder = Path(settings.path).expanduser()
    if folder.is_dir():
        return read_config(folder)
    snapshot = cached_snapshot("models", settings.path, settings.revision)
    return None if snapshot is None else read_config(snapshot)


def context_length(settings: ModelSettings) -> int | None:
    """Return how many tokens the model reads, prompt and completion together, or None where nobody says."""
    if isinstance(settings, TinyModel):
        return settings.architecture.max_position_embeddings
    if settings.context_length is not None:
        return settings.context_length
    config = model_config(settings)
    if config is None:
        return None
    text_config = config.get("text_config", config)
    limit = text_config.get("max_position_embeddings")
    scaling = text_config.get("rope_parameters") or text_config.get("rope_scaling") or {}
    factor = scaling.get("factor", 1) if isinstance(scaling, dict) else 1
    if not isinstance(limit, int) or not isinstance(factor, int | float):
        return None
    original = scaling.get("original_max_position_embeddings", limit) if isinstance(scaling, dict) else limit
    is_scaled_already = isinstance(original, int) and original < limit  # so in Llama 3; Qwen's yarn leaves it as it was
    return limit if is_scaled_already else int(limit * max(1, factor))


def architecture_of(settings: ModelSettings) -> Architecture | None:
    """Return the shape of a model, or None where neither its settings nor its files here tell one we know."""
    if isinstance(settings, TinyModel):
        shape = settings.architecture
        return Architecture(
            num_hidden_layers=shape.num_hidden_layers,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            head_dim=shape.hidden_size // shape.num_attention_heads,
            vocab_size=NUM_TOKENS,
            tie_word_embeddings=True,
            attention_bias=True,
        )
    if settings.architecture is not None:
        return settings.architecture
    config = model_config(settings)
    return None if config is None else from_model_config(config)
