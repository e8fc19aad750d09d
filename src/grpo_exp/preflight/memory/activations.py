"""What autograd keeps of a forward pass for the backward one, tensor by tensor.

Counted in transformers' decoder layer of Llama, Qwen2 and Qwen3 with scaled-dot-product attention, and compared with
what torch really keeps (`tests/unit/preflight/test_memory_activations.py`). Sizes are bytes for one token of one layer
unless a name says otherwise; h is the width of the residual stream, q that of all query heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.lora import ALL_LINEAR, LoraSettings

#: Linear layers that read the same tensor.
_SHARED_INPUTS = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"})


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a number, by what it is part of."""

    weight: int
    """Of the weights in memory."""
    autocast: bool
    """Matrix products are computed in 16 bits by autocast."""

    @property
    def compute(self) -> int:
        """Of the results of matrix products."""
        return 2 if self.autocast or self.weight == 2 else 4

    @property
    def copies_weights(self) -> bool:
        """Whether autocast keeps a copy of each weight in 16 bits."""
        return self.autocast and self.weight == 4


def layer_bytes(shape: Architecture, precision: Precision, lora: LoraSettings) -> int:
    """Return what one layer keeps for one token, without attention mask and copies of weights."""
    h, q, heads = shape.hidden_size, shape.query_size, shape.num_attention_heads
    c = precision.compute
    attention = 4 * q * c + 4 * heads  # q, k and v expanded to all heads, output; log-sum-exp in float32
    norms = 2 * (4 * h + 4)  # their input in float32, and one number
    if lora.enabled:
        gates = 3 * shape.intermediate_size * c  # gate, its activation, up
        return norms + attention + gates + _adapter_bytes(shape, precision, lora) + _head_norm_bytes(shape, None)
    normed = 2 * h * precision.weight
    inputs = 5 * h * 2 if precision.copies_weights else 2 * h * precision.weight  # autocast casts for each layer anew
    gates = 4 * shape.intermediate_size * c  # and their product
    return norms + normed + inputs + attention + gates + _head_norm_bytes(shape, precision)


def _head_norm_bytes(shape: Architecture, precision: Precision | None) -> int:
    """Return what the norms of query and key heads keep; without precision their weights are frozen."""
    if not shape.query_key_norm:
        return 0
    width = shape.query_size + shape.key_value_size
    heads = shape.num_attention_heads + shape.num_key_value_heads
    return 4 * width + 4 * heads + (0 if precision is None else width * precision.compute)


def adapted_layers(lora: LoraSettings, shape: Architecture) -> list[str]:
    """Return the linear layers of a decoder layer that get an adapter."""
    names = list(shape.linear_shapes)
    return names if ALL_LINEAR in lora.target_modules else [name for name in names if name in lora.target_modules]


def _adapter_bytes(shape: Architecture, precision: Precision, lora: LoraSettings) -> int:
    """Return what the adapters of one layer keep: the input of each A, which is in float32 or cast, and its output."""
    names = adapted_layers(lora, shape)
    number = 2 if precision.autocast else 4
    outputs = len(names) * lora.r * number
    widths = {name: shape.linear_shapes[name][0] for name in names}
    if precision.weight == 4 and not precision.autocast:  # nothing is cast, so what others keep serves
        widths.pop("o_proj", None)
        for group in _SHARED_INPUTS:
            for name in sorted(group & set(widths))[1:]:
                del widths[name]
    return outputs + number * sum(widths.values())


def adapter_parameters(shape: Architecture, lora: LoraSettings) -> int:
    """Return the weights of all adapters: r (inputs + outputs) for each layer (arXiv:2106.09685, section 4.1)."""
    if not lora.enabled:
        return 0
    ends = sum(sum(shape.linear_shapes[name]) for name in adapted_layers(lora, shape))
    return shape.num_hidden_layers * lora.r * ends


def weight_copies(shape: Architecture, precision: Precision, lora: LoraSettings) -> int:
    """Return the bytes of the 16-bit copies of one layer's weights that autocast makes."""
    of_layer = shape.linear_parameters // shape.num_hidden_layers
    adapters = adapter_parameters(shape, lora) // shape.num_hidden_layers if precision.autocast else 0
    return 2 * ((of_layer if precision.copies_weights and not lora.is_quantized else 0) + adapters)


def mask_bytes(rows: int, length: int, precision: Precision) -> int:
    """Return the bytes of the attention mask that each layer keeps: prompts are padded, so there is one."""
    return rows * length * length * precision.compute


def checkpoint_bytes(shape: Architecture, precision: Precision) -> int:
    """Return what one layer keeps for one token with gradient checkpointing: its input."""
    return shape.hidden_size * precision.weight


def kept_outside(shape: Architecture, precision: Precision, *, rows: int, length: int, frozen: bool) -> int:
    """Return the bytes that are kept outside the layers: ids, the last norm, the angles of the rotation.

    Args:
        shape: Of the model.
        precision: Of its numbers.
        rows: Of the batch.
        length: Tokens of a row.
        frozen: The norm's weight is not trained.
    """
    tokens, h = rows * length, shape.hidden_size
    norm = 4 * h + 4 + (0 if frozen else h * precision.weight)
    ids = 0 if frozen else 8
    return tokens * (norm + ids) + 2 * length * shape.head_dim * precision.weight
