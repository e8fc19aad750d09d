"""Settings of the policy: one of several kinds of model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from grpo_exp.settings.lora import LoraSettings
from grpo_exp.settings.model_values import CompletionLength, LearningRate, MicroBatch
from grpo_exp.settings.pretrained_model import BundledModel, HubModel, LocalModel, PretrainedModel
from grpo_exp.settings.tiny_model import Priming, TinyArchitecture, TinyModel

__all__ = [
    "BundledModel",
    "CompletionLength",
    "HubModel",
    "LearningRate",
    "LocalModel",
    "LoraSettings",
    "MicroBatch",
    "ModelSettings",
    "PretrainedModel",
    "Priming",
    "TinyArchitecture",
    "TinyModel",
    "location_of",
]

ModelSettings = Annotated[TinyModel | LocalModel | HubModel | BundledModel, Field(discriminator="kind")]


def location_of(model: ModelSettings) -> str | None:
    """Return the folder or hub id that the weights are read from, or None for a model that is made here."""
    if model.prime_from is not None:
        return str(Path(model.prime_from) / "model")
    return model.path if isinstance(model, LocalModel | HubModel) else None
