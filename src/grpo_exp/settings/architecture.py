"""The numbers of a decoder that its parameters, activations and cache are counted from, without loading it.

For the family of Llama: RMS norms, rotary positions, grouped-query attention, an MLP of gate, up and down projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from grpo_exp.settings.base import Int, Settings

#: model_type of a config.json -> (query, key and value projections have a bias, query and key are normed).
_FAMILIES = {"llama": (False, False), "mistral": (False, False), "qwen2": (True, False), "qwen3": (False, True)}

Size = Annotated[Int, Field(ge=1, le=1_048_576)]


class Architecture(Settings):
    """Shape of a dense decoder, with the names of its config.json."""

    num_hidden_layers: Annotated[Int, Field(ge=1, le=1024)]
    """Transformer layers."""
    hidden_size: Size
    """Width of the residual stream."""
    intermediate_size: Size
    """Width of the MLP."""
    num_attention_heads: Annotated[Int, Field(ge=1, le=1024)]
    """Query heads."""
    num_key_value_heads: Annotated[Int, Field(ge=1, le=1024)]
    """Key and value heads."""
    head_dim: Annotated[Int, Field(ge=1, le=8192)]
    """Width of a head."""
    vocab_size: Annotated[Int, Field(ge=1, le=16_777_216)]
    """Rows of the embedding."""
    tie_word_embeddings: bool
    """The output layer is the embedding."""
    attention_bias: bool = False
    """Query, key and value projections have a bias (Qwen2)."""
    query_key_norm: bool = False
    """Query and key heads are normed (Qwen3)."""

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.num_key_value_heads * self.head_dim

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Linear layers of one decoder layer: name -> (inputs, outputs)."""
        hidden, query, key_value, inner = (
            self.hidden_size, self.query_size, self.key_value_size, self.intermediate_size,
        )  # fmt: skip
        return {
            "q_proj": (hidden, query),
            "k_proj": (hidden, key_value),
            "v_proj": (hidden, key_value),
            "o_proj": (query, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def linear_parameters(self) -> int:
        """Weights of the linear layers of all decoder layers, without biases: what quantization takes."""
        return self.num_hidden_layers * sum(inputs * outputs for inputs, outputs in self.linear_shapes.values())

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer."""
        biases = self.query_size + 2 * self.key_value_size if self.attention_bias else 0
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.query_key_norm else 0)
        return self.linear_parameters // self.num_hidden_layers + biases + norms

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters; a tied embedding counts once."""
        embeddings = self.embedding_parameters * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * self.layer_parameters + embeddings + self.hidden_size


def from_model_config(config: Mapping[str, Any]) -> Architecture | None:
    """Return the shape that a config.json tells, or None where it is of another family or lacks a number."""
    family = _FAMILIES.get(str(config.get("model_type")))
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if family is None or not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        return None
    wanted = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
    values = {name: config.get(name) for name in wanted}
    values["num_key_value_heads"] = config.get("num_key_value_heads") or heads
    values["head_dim"] = config.get("head_dim") or hidden // heads
    values["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
    values["attention_bias"] = family[0]
    values["query_key_norm"] = family[1]
    # The bias that some Llama and Qwen3 models have also sits on the output projection: a shape of its own.
    if config.get("attention_bias") or config.get("mlp_bias"):
        return None
    try:
        return Architecture.model_validate(values)
    except ValidationError:
        return None
