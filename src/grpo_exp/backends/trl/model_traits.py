"""What a loaded model tells about its padding: whether cutting it leaves every number as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

#: transformers' names for the dropout of attention weights, which is a number and no module.
_ATTENTION_DROPOUT = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "attention_dropout_prob")
#: Kinds of rotary scaling that look at the length of the padded batch (transformers' `modeling_rope_utils`).
_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def layout_fault(model: PreTrainedModel, *, aux_loss_enabled: bool) -> str | None:
    """Return why another layout of the micro-batches would change the gradient of this model, or None.

    Args:
        model: The policy.
        aux_loss_enabled: Whether TRL adds the load-balancing loss of experts.
    """
    if aux_loss_enabled:
        return "the model's load-balancing loss is taken over each micro-batch, so its gradient depends on the split"
    config = model.config.get_text_config().to_dict()
    dropping = [name for name in _ATTENTION_DROPOUT if config.get(name)]
    if any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        dropping.append("dropout")
    if dropping:
        return f"the model has {dropping[0]} above 0, and its masks would be others"
    scaled = [kind for kind in _rope_types(config.get("rope_parameters")) if kind in _LENGTH_DEPENDENT_ROPE]
    if scaled:
        return f"the model's rotary scaling ({scaled[0]}) depends on the length of the padded batch"
    return None


def ignores_left_padding(model: PreTrainedModel) -> bool:
    """Say whether the padding in front of a prompt can be cut without changing any number but by rounding.

    So it is with rotary positions, which are relative. Learned positions count the padding, and so may convolutions.
    """
    names = [type(module).__name__ for module in model.modules()]
    return any("RotaryEmbedding" in name for name in names) and not any(
        isinstance(module, nn.Conv1d) for module in model.modules()
    )


def _rope_types(parameters: Any) -> Iterator[str]:
    """Yield the kinds of rotary scaling; a model with several kinds of layers has one for each."""
    if isinstance(parameters, Mapping):
        if "rope_type" in parameters:
            yield str(parameters["rope_type"])
        for value in parameters.values():
            yield from _rope_types(value)
