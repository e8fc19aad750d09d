"""The adapter that is trained instead of the weights."""

from __future__ import annotations

from typing import Any

from peft import LoraConfig

from grpo_exp.settings.lora import ALL_LINEAR, LoraSettings
from grpo_exp.settings.model import HubModel, LocalModel, ModelSettings, location_of


def build_lora(settings: LoraSettings) -> LoraConfig | None:
    """Return what peft is told, or None where all weights are trained.

    B begins at 0 and A at random (peft's default), so that the policy begins as the model it is.
    """
    if not settings.enabled:
        return None
    names = list(settings.target_modules)
    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.lora_alpha,  # pyright: ignore[reportArgumentType] - its type says int; it multiplies
        lora_dropout=settings.lora_dropout,
        target_modules=ALL_LINEAR if names == [ALL_LINEAR] else names,
        use_rslora=settings.use_rslora,
        bias="none",
        task_type="CAUSAL_LM",
    )


def name_base(model: Any, settings: ModelSettings) -> None:
    """Have a saved adapter name its model as the user did: peft would write down the folder of a cache.

    One that began with the weights of a run names these: on those of `model.path` it would be another policy.

    Args:
        model: With adapters; any other is left as it is.
        settings: Of the model.
    """
    if not settings.lora.enabled or not isinstance(settings, LocalModel | HubModel):
        return
    for config in model.peft_config.values():
        config.base_model_name_or_path = location_of(settings)
        config.revision = settings.revision if settings.prime_from is None else None
