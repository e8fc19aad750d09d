"""Faults of adapters: what LoRA and 4-bit weights do not go together with, and why."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from grpo_exp import devices
from grpo_exp.errors import MissingPackageFault
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.settings.lora import ALL_LINEAR
from grpo_exp.settings.run import RunSettings

_OFF = "use model/lora=off"


def adapter_faults(settings: RunSettings, *, runs_here: bool) -> list[str]:
    """Return why these adapters cannot be trained in this run."""
    if not settings.model.lora.enabled:
        return []
    quantized = _quantization_faults(settings, runs_here) if settings.model.lora.is_quantized else ()
    return [*_lora_faults(settings), *quantized]


def _lora_faults(settings: RunSettings) -> Iterator[str]:
    strategy, algorithm = settings.launch.strategy, settings.algorithm
    yield from _module_faults(settings)
    if algorithm.sync_ref_model and algorithm.beta > 0:
        yield (
            "model.lora.enabled=true: algorithm.sync_ref_model=true refreshes a copy of the policy, and with an "
            "adapter the reference is the model without it; use algorithm.sync_ref_model=false, or model/lora=off"
        )
    if strategy == "fsdp1":
        yield (
            "model.lora.enabled=true: launch.strategy=fsdp1 joins trained and frozen weights in one flat parameter, "
            f"which then takes the memory of full fine-tuning; use launch.strategy=fsdp2 or ddp, or {_OFF[4:]}"
        )
    if strategy == "fsdp2" and settings.vllm.mode != "off":
        yield (
            f"vllm={settings.vllm.mode}: TRL merges the adapter into the weights that it sends to vLLM, which it "
            f"cannot where launch.strategy=fsdp2 has cut them up; use launch.strategy=ddp or zero3, or {_OFF[4:]}"
        )


def _module_faults(settings: RunSettings) -> Iterator[str]:
    """Look whether the layers are there: of a model whose shape is known, peft would look after loading it."""
    shape, names = architecture_of(settings.model), settings.model.lora.target_modules
    if shape is None or names == (ALL_LINEAR,):
        return
    layers = shape.linear_shapes
    unknown = [name for name in names if name.rpartition(".")[2] not in layers]
    if unknown:
        yield (
            f"model.lora.target_modules={list(names)}: {', '.join(unknown)} is no linear layer of this model, which "
            f"has {', '.join(layers)}; use these, or {ALL_LINEAR} alone"
        )


def _quantization_faults(settings: RunSettings, runs_here: bool) -> Iterator[str]:
    given, strategy = "model.lora.quantization=nf4", settings.launch.strategy
    if settings.model.kind == "tiny":
        yield f"{given}: the built-in policy has a million weights in float32 and nothing to save; use none"
        return
    if importlib.util.find_spec("bitsandbytes") is None:
        yield MissingPackageFault(
            f"{given}: the package bitsandbytes is not installed; pip install 'grpo-exp[qlora]', or use none"
        )
    if devices.will_use_cpu(settings.launch.device, runs_here=runs_here):
        # Read in bitsandbytes 0.50 (`Linear4bit.forward`, `matmul_4bit`) and seen: an error in the first backward pass.
        yield (
            f"{given}: on a CPU bitsandbytes packs the weights anew for the first generation, and what is packed so "
            "cannot be trained through; use none"
        )
    if settings.vllm.mode != "off":
        yield (
            f"vllm={settings.vllm.mode}: TRL merges the adapter into the weights that it sends to vLLM, and merging "
            f"into 4 bits rounds the adapter away ({given}); use vllm=off, or model/lora=on without quantization"
        )
    if strategy in {"zero3", "fsdp1", "fsdp2"}:
        yield (
            f"{given}: launch.strategy={strategy} cuts the weights up, which packed 4-bit weights do not survive; use "
            "launch.strategy=ddp or zero2: each GPU then holds the small weights whole"
        )
