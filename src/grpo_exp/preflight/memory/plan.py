"""The memory of one GPU in each phase of a step, and which phase needs most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_exp.preflight.memory.activations import (
    Precision,
    checkpoint_bytes,
    kept_outside,
    layer_bytes,
    mask_bytes,
    weight_copies,
)
from grpo_exp.preflight.memory.gpus import GIB, Gpu
from grpo_exp.preflight.memory.states import States, count_states, precision_of, trained_parameters
from grpo_exp.preflight.memory.tokens import Tokens, count_tokens
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings

#: TRL 1.16 computes logits in tiles and never holds them all: so many tokens by so many entries of the vocabulary
#: (`kernels/chunked_logprob.py`, `trainer/utils.py`).
_TILE_TOKENS, _TILE_ENTRIES = 4096, 32_768
#: Copies of the logits of the next token while one is drawn: as they are, in float32, as probabilities.
_SAMPLING_COPIES = 3
#: Assumed, not measured: CUDA's own memory, and what is lost between blocks.
CONTEXT_BYTES, FRAGMENTED = GIB, 0.05


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """An estimate for one GPU, in bytes."""

    parts: Mapping[str, int]
    """Each part at its largest; they do not all exist at one time."""
    phases: Mapping[str, int]
    """Sum of what exists in each phase of a step, with the reserve."""
    gpu: Gpu | None
    """Which it is for; None where nobody said and none is visible."""
    num_parameters: int
    """Of the model, without adapters."""
    num_trained: int
    """Numbers that the optimizer moves."""
    tokens: Tokens
    """The largest batches."""

    @property
    def peak(self) -> int:
        """The most that any phase holds."""
        return max(self.phases.values())

    @property
    def peak_phase(self) -> str:
        """The phase that holds it."""
        return max(self.phases, key=lambda name: self.phases[name])

    @property
    def fits(self) -> bool | None:
        """Whether the peak is within the GPU's memory; None where there is no GPU to compare with."""
        return None if self.gpu is None else self.peak <= self.gpu.memory


def plan_memory(
    settings: RunSettings, batch: BatchPlan, *, prompt_tokens: int | None = None, gpu: Gpu | None = None
) -> MemoryPlan | None:
    """Estimate what one GPU holds; None where the shape of the model is not known here.

    Args:
        settings: Of the run.
        batch: Its solved batch arithmetic.
        prompt_tokens: Of the longest prompt (`longest_prompt`); None is half the longest completion.
        gpu: To compare with.
    """
    shape = architecture_of(settings.model)
    if shape is None:
        return None
    precision, states = precision_of(settings), count_states(settings, shape)
    tokens = count_tokens(settings, batch, prompt_tokens)
    parts = {
        "weights": states.weights,
        "gradients": states.gradients + states.buckets,
        "optimizer": states.optimizer,
        "reference model": states.reference,
        "activations": _activations(settings, shape, precision, tokens) + states.largest_gather,
        "log-probabilities": _log_probabilities(settings, shape, precision, tokens),
        "optimizer step": states.step,
        **_generation(settings, shape, precision, tokens, gpu),
    }
    return MemoryPlan(
        parts=parts,
        phases=_phases(settings, parts, states),
        gpu=gpu,
        num_parameters=shape.num_parameters,
        num_trained=trained_parameters(settings, shape),
        tokens=tokens,
    )


def _phases(settings: RunSettings, parts: Mapping[str, int], states: States) -> dict[str, int]:
    always = states.weights + states.optimizer + states.reference
    engine = parts["vLLM"]
    sleeps = settings.vllm.mode == "colocate" and settings.vllm.enable_sleep_mode
    beside = 0 if sleeps else engine
    sums = {
        # A weight's gradient exists until the optimizer's step; before it, generation has the place of most gradients.
        "generation": always
        + states.in_generation
        + engine
        + parts["KV cache"]
        + parts["sampling"]
        + parts["gathered weights"],
        "forward and backward": always
        + beside
        + parts["gradients"]
        + parts["activations"]
        + parts["log-probabilities"],
        "optimizer step": always + beside + parts["gradients"] + parts["optimizer step"],
    }
    return {name: _with_reserve(total, engine if name == "generation" else beside) for name, total in sums.items()}


def _with_reserve(total: int, engine: int) -> int:
    """Add what is lost: not of vLLM's share, which is taken in one piece."""
    return engine + int((total - engine) * (1 + FRAGMENTED)) + CONTEXT_BYTES


def _activations(settings: RunSettings, shape: Architecture, precision: Precision, tokens: Tokens) -> int:
    """Return what the backward pass finds, and what it works with on top."""
    lora, layers = settings.model.lora, shape.num_hidden_layers
    one_layer = (
        tokens.total * layer_bytes(shape, precision, lora)
        + mask_bytes(tokens.rows, tokens.length, precision)
        + weight_copies(shape, precision, lora)
    )
    kept = kept_outside(shape, precision, rows=tokens.rows, length=tokens.length, frozen=lora.enabled)
    if settings.trainer.gradient_checkpointing:
        # The forward pass under autocast keeps the copies of all weights until its end.
        copies = layers * weight_copies(shape, precision, lora)
        kept += layers * tokens.total * checkpoint_bytes(shape, precision) + max(one_layer, copies)
    else:
        kept += layers * one_layer
    # Gradients of the three results of an MLP and of the residual stream.
    working = tokens.total * (3 * shape.intermediate_size * precision.compute + 2 * 4 * shape.hidden_size)
    return kept + working


def _log_probabilities(settings: RunSettings, shape: Architecture, precision: Precision, tokens: Tokens) -> int:
    """Return the tile of logits and the gradients of hidden states and output layer, which TRL sums in float32."""
    scored = tokens.rows * tokens.completion
    tile = min(scored, _TILE_TOKENS) * min(shape.vocab_size, _TILE_ENTRIES) * precision.compute
    hidden = scored * shape.hidden_size * (4 + 2 * precision.weight)  # its gradient, itself, its gradient as it was
    output = 0 if settings.model.lora.enabled else shape.embedding_parameters * (4 + precision.weight)
    whole = shape.embedding_parameters * precision.weight if settings.launch.shards_weights else 0
    return tile + hidden + output + whole


def _generation(
    settings: RunSettings, shape: Architecture, precision: Precision, tokens: Tokens, gpu: Gpu | None
) -> dict[str, int]:
    """Return what generation holds: keys and values and the next token's logits, or vLLM's share instead of them."""
    names = ("vLLM", "KV cache", "sampling", "gathered weights")
    vllm = settings.vllm
    if vllm.mode == "server":
        return dict.fromkeys(names, 0)
    if vllm.mode == "colocate":
        share = 0 if gpu is None else int(vllm.gpu_memory_utilization * gpu.memory)
        return {**dict.fromkeys(names, 0), "vLLM": share}
    sequence = cache_bytes(shape, tokens.length, precision.compute)
    cache = tokens.generated_rows * sequence
    growing = cache // shape.num_hidden_layers  # a layer's cache is copied when it grows
    sampling = tokens.generated_rows * shape.vocab_size * 4 * _SAMPLING_COPIES
    gathers = settings.launch.strategy == "zero3"  # TRL gathers all weights for it
    whole = shape.num_parameters * precision.weight if gathers else 0
    return {"vLLM": 0, "KV cache": cache + growing, "sampling": sampling, "gathered weights": whole}


def cache_bytes(shape: Architecture, length: int, number: int) -> int:
    """Return the bytes of keys and values of one sequence: 2 x layers x key width x tokens x bytes of a number."""
    return 2 * shape.num_hidden_layers * shape.key_value_size * length * number
