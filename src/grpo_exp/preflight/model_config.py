"""What a model's folder says about it, read without transformers, which would import torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_exp.settings.run import RunSettings


def longest_context(settings: RunSettings) -> int | None:
    """Return how many tokens the model reads, or None where its folder does not say."""
    if settings.model.kind == "tiny":
        return settings.model.architecture.max_position_embeddings
    config = read_model_config(settings.model.path)
    if not isinstance(config, dict):
        return None
    text_config = config.get("text_config", config)
    limit = text_config.get("max_position_embeddings")
    scaling = text_config.get("rope_parameters") or text_config.get("rope_scaling") or {}
    factor = scaling.get("factor", 1) if isinstance(scaling, dict) else 1
    if not isinstance(limit, int) or not isinstance(factor, int | float):
        return None
    return int(limit * max(1, factor))


def read_model_config(path: str | None) -> Any:
    """Return the content of `config.json`, or None where there is none to read."""
    file = Path(path or "").expanduser() / "config.json"
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # told by the model faults
