"""Notes on the model: settings without effect, and values known to go wrong."""

from __future__ import annotations

import os

from grpo_exp import devices
from grpo_exp.machine import cpu_flags
from grpo_exp.preflight.model_faults import lost_steps
from grpo_exp.settings.lora import LoraSettings
from grpo_exp.settings.model import HubModel, LocalModel, PretrainedModel
from grpo_exp.settings.run import RunSettings

#: What a CPU needs to compute in bfloat16 by itself; others emulate it.
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
#: Rates below it are those of full fine-tuning.
_SLOW_FOR_ADAPTERS = 3e-6


def model_notes(settings: RunSettings) -> list[str]:
    """Return one line for each: the value, why, and what to do."""
    return [*_source_notes(settings), *_type_notes(settings), *_lora_notes(settings)]


def _source_notes(settings: RunSettings) -> list[str]:
    model, found = settings.model, []
    if not isinstance(model, PretrainedModel):
        return []
    is_folder = isinstance(model, LocalModel | HubModel) and os.path.isdir(os.path.expanduser(model.path or ""))  # noqa: PTH111, PTH112
    if isinstance(model, LocalModel | HubModel) and model.revision is not None and is_folder:
        found.append(
            f"model.revision={model.revision} has no effect: model.path is a folder, and only models of the hub have "
            "revisions; leave it out"
        )
    if model.trust_remote_code:
        found.append(
            "model.trust_remote_code=true: Python code that comes with the model runs here with your rights; "
            "model.revision=COMMIT keeps it to a version that you have read"
        )
    return found


def _type_notes(settings: RunSettings) -> list[str]:
    model, launch, found = settings.model, settings.launch, []
    if not isinstance(model, PretrainedModel):
        return []
    on_cpu, keeps_float32 = devices.uses_cpu(launch.device), launch.strategy in {"zero2", "zero3"}
    if model.dtype == "float16":
        found.append(
            "model.dtype=float16: small gradients become 0 in float16, since nothing scales the loss; "
            "model.dtype=float32 with launch.mixed_precision=bf16 is usual"
        )
    if model.dtype == "bfloat16" and not model.lora.enabled and not keeps_float32 and not on_cpu:
        found.append(
            f"model.dtype=bfloat16: {lost_steps(settings)}; use float32 with launch.mixed_precision=bf16, or "
            "launch=zero2 or zero3, which keep a copy in float32"
        )
    if on_cpu and launch.mixed_precision == "bf16" and not _BFLOAT16_FLAGS & cpu_flags():
        found.append(
            "launch.mixed_precision=bf16: this CPU has no instructions for bfloat16 and emulates them, which is slower "
            "and less exact than launch.mixed_precision=no"
        )
    return found


def _lora_notes(settings: RunSettings) -> list[str]:
    lora, rate = settings.model.lora, settings.trainer.learning_rate
    if not lora.enabled:
        fields = LoraSettings.model_fields
        return [
            f"model.lora.{name}={getattr(lora, name)} has no effect: there is no adapter; add model/lora=on, or leave "
            "it out"
            for name in fields
            if name != "enabled" and getattr(lora, name) != fields[name].default
        ]
    found = []
    if rate < _SLOW_FOR_ADAPTERS:
        found.append(
            f"trainer.learning_rate={rate:g} with an adapter: that is a rate of full fine-tuning, and adapters take "
            "about ten times as much; model/lora=on sets model.lora_learning_rate"
        )
    if lora.lora_dropout > 0:
        found.append(
            f"model.lora.lora_dropout={lora.lora_dropout:g}: the same tokens get other probabilities in each pass, so "
            "that ratios are off without any update; 0 is usual for reinforcement learning"
        )
    if lora.quantization == "none" and not lora.double_quantization:
        found.append(
            "model.lora.double_quantization=false has no effect: model.lora.quantization is none; leave it out"
        )
    return found
