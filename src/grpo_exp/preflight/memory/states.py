"""What a process holds all the time: weights, gradients, optimizer, reference model."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_exp.preflight.memory.activations import Precision, adapter_parameters
from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.run import RunSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Bits of a 4-bit weight with its scales: a scale in float32 for 64 weights, or quantized to 8 bits and one in float32
#: for 256 of those (QLoRA, arXiv:2305.14314, section 3).
_BITS_OF_NF4 = {False: 4 + 32 / 64, True: 4 + 8 / 64 + 32 / (64 * 256)}

#: DeepSpeed's default of `sub_group_size`.
_SUB_GROUP = 1_000_000_000


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one GPU."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    buckets: int
    """Copies of gradients that DDP sums over the processes."""
    in_generation: int
    """Of gradients and their copies what stays between two steps."""
    step: int
    """What AdamW needs beside all this while it makes its step."""
    largest_gather: int
    """Weights that are gathered for the moment in which they are needed."""


def precision_of(settings: RunSettings) -> Precision:
    """Return the bytes of weights and results; DeepSpeed turns the weights themselves into 16 bits."""
    mixed = settings.launch.mixed_precision != "no"
    if mixed and settings.launch.strategy in {"zero2", "zero3"}:
        return Precision(weight=2, autocast=False)
    if mixed and settings.launch.strategy in {"fsdp1", "fsdp2"}:
        return Precision(weight=2, autocast=False)  # what is gathered for a pass; the shards keep their type
    return Precision(_BYTES[settings.model.weights_dtype], autocast=mixed)


def trained_parameters(settings: RunSettings, shape: Architecture) -> int:
    """Return how many numbers the optimizer moves."""
    lora = settings.model.lora
    return adapter_parameters(shape, lora) if lora.enabled else shape.num_parameters


def count_states(settings: RunSettings, shape: Architecture) -> States:
    """Return what is held all the time, per GPU."""
    launch, lora = settings.launch, settings.model.lora
    processes, trained = launch.num_processes, trained_parameters(settings, shape)
    sharded = processes if launch.shards_weights else 1
    shared = processes if launch.strategy != "ddp" else 1
    kept = _BYTES[settings.model.weights_dtype]
    by_deepspeed = launch.strategy in {"zero2", "zero3"} and launch.mixed_precision != "no"
    weight = 2 if by_deepspeed else kept
    # peft keeps adapters in float32, TRL those beside 4-bit weights in bfloat16.
    number = 2 if by_deepspeed or lora.is_quantized else 4 if lora.enabled else kept
    frozen = _frozen_bytes(settings, shape, weight) if lora.enabled else 0
    weights = (frozen + trained * number) // sharded
    # Two moments in the type of the weights; DeepSpeed adds a copy of the weights in float32 (arXiv:1910.02054, 3.1),
    # with ZeRO-2 also of weights that are in float32 already (DeepSpeed 0.19, `stage_1_and_2.py`).
    moments = 12 if by_deepspeed or launch.strategy == "zero2" else 2 * number
    optimizer = trained * moments // shared
    gradients = trained * number // shared
    buckets = trained * number if launch.strategy == "ddp" and processes > 1 else 0
    held = optimizer if launch.offload == "none" else 0
    layer = max(shape.layer_parameters, shape.embedding_parameters) * precision_of(settings).weight
    return States(
        weights=0 if launch.offload == "parameters" else weights,
        gradients=gradients,
        optimizer=held,
        reference=_reference_bytes(settings, shape, weight),
        buckets=buckets,
        # DDP makes its buckets once, ZeRO-3 its buffer of gradients (DeepSpeed 0.19, `stage3.py`).
        in_generation=buckets + (gradients if launch.strategy == "zero3" and launch.offload == "none" else 0),
        step=_step_bytes(settings, trained // shared, number, by_deepspeed=by_deepspeed),
        largest_gather=2 * layer if sharded > 1 else 0,  # one is gathered while another one is used
    )


def _step_bytes(settings: RunSettings, trained: int, number: int, *, by_deepspeed: bool) -> int:
    """Return what the step of AdamW takes for the moment, for the trained numbers of one process.

    torch's AdamW computes the roots of all second moments at once. DeepSpeed copies gradients into float32 for it,
    ZeRO-3 for at most `sub_group_size` numbers at a time (DeepSpeed 0.19, `stage_1_and_2.py` and `stage3.py`).
    """
    if settings.launch.offload != "none":
        return 0
    if not by_deepspeed:
        return trained * number
    at_once = min(trained, _SUB_GROUP) if settings.launch.strategy == "zero3" else trained
    return at_once * (4 + 4)


def _frozen_bytes(settings: RunSettings, shape: Architecture, weight: int) -> int:
    lora = settings.model.lora
    if not lora.is_quantized:
        return shape.num_parameters * weight
    quantized = int(shape.linear_parameters * _BITS_OF_NF4[lora.double_quantization] / 8)
    return quantized + (shape.num_parameters - shape.linear_parameters) * weight


def _reference_bytes(settings: RunSettings, shape: Architecture, weight: int) -> int:
    """Return the bytes of the reference model: none without a KL, and with an adapter, which is switched off for it."""
    if settings.algorithm.beta == 0 or settings.model.lora.enabled:
        return 0
    processes = settings.launch.num_processes if settings.launch.shards_weights else 1
    return shape.num_parameters * weight // processes
