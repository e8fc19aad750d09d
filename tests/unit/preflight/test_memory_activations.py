"""What the plan says that torch holds is what torch holds: parameters, gradients, AdamW's moments, saved tensors.

On a CPU, where every tensor can be looked at. What a GPU's allocator and kernels add to it is not shown here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from peft import get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from grpo_exp.models.lora import build_lora
from grpo_exp.preflight.memory.activations import (
    Precision,
    adapter_parameters,
    checkpoint_bytes,
    kept_outside,
    layer_bytes,
    mask_bytes,
    weight_copies,
)
from grpo_exp.preflight.memory.plan import cache_bytes
from grpo_exp.preflight.memory.states import count_states
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.settings import load
from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.lora import LoraSettings

FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
ROWS, LENGTH = 2, 40
OFF, ON = LoraSettings(), LoraSettings(enabled=True, r=8)
DTYPES = {4: torch.float32, 2: torch.bfloat16}


def shape_of(family: str, layers: int = 2) -> Architecture:
    """Return a shape in which no two widths are equal: 48, 64, 32, 176."""
    return Architecture(
        num_hidden_layers=layers, hidden_size=48, intermediate_size=176, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=64, tie_word_embeddings=True, attention_bias=family == "qwen2",
        query_key_norm=family == "qwen3",
    )  # fmt: skip


def build(family: str, shape: Architecture) -> Any:
    config, model = FAMILIES[family]
    names = set(Architecture.model_fields) - {"attention_bias", "query_key_norm"}
    return model(config(**{name: getattr(shape, name) for name in names}, attn_implementation="sdpa"))


@contextmanager
def counting(model: Any) -> Iterator[dict[int, int]]:
    """Count the bytes of every storage that autograd keeps inside, apart from parameters."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, int] = {}
    alive = []  # a storage that is given free would lend its address to another one

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield found


def kept_by_torch(
    family: str, layers: int, precision: Precision, lora: LoraSettings, *, checkpoint: bool = False
) -> int:
    shape = shape_of(family, layers)
    torch.manual_seed(0)
    model = build(family, shape).to(DTYPES[precision.weight])
    adapter = build_lora(lora)
    model = model if adapter is None else get_peft_model(model, adapter)
    backbone = model.model if adapter is None else model.get_base_model().model
    model.train()
    if checkpoint:
        (model if adapter is None else model.get_base_model()).gradient_checkpointing_enable()
        if adapter is not None:
            model.enable_input_require_grads()
    ids = torch.randint(0, 50, (ROWS, LENGTH))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0  # prompts are padded, so attention has a mask
    with counting(model) as found, torch.autocast("cpu", torch.bfloat16, enabled=precision.autocast):
        backbone(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(found.values())


@pytest.mark.parametrize("lora", [OFF, ON, LoraSettings(enabled=True, r=4, target_modules=("q_proj", "v_proj"))],
                         ids=["full", "all-linear", "q and v"])  # fmt: skip
@pytest.mark.parametrize(
    "precision",
    [Precision(4, False), Precision(4, True), Precision(2, False), Precision(2, True)],
    ids=["float32", "float32 autocast", "bfloat16", "bfloat16 autocast"],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_keeps_what_the_plan_says_to_the_byte(family: str, precision: Precision, lora: LoraSettings) -> None:
    """What three layers keep more than two is what one keeps."""
    shape = shape_of(family)
    more = kept_by_torch(family, 3, precision, lora) - kept_by_torch(family, 2, precision, lora)
    planned = (
        ROWS * LENGTH * layer_bytes(shape, precision, lora)
        + mask_bytes(ROWS, LENGTH, precision)
        + weight_copies(shape, precision, lora)
    )
    assert more == planned


@pytest.mark.parametrize("precision", [Precision(4, False), Precision(2, False)], ids=["float32", "bfloat16"])
def test_checkpointing_keeps_the_input_of_each_layer(precision: Precision) -> None:
    """And the mask once, which it hands to all layers: 2 x 40 x 40 booleans."""
    more = kept_by_torch("qwen2", 3, precision, OFF, checkpoint=True)
    more -= kept_by_torch("qwen2", 2, precision, OFF, checkpoint=True)
    assert more == ROWS * LENGTH * checkpoint_bytes(shape_of("qwen2"), precision)


@pytest.mark.parametrize("precision", [Precision(4, False), Precision(2, False)], ids=["float32", "bfloat16"])
def test_what_is_kept_outside_the_layers(precision: Precision) -> None:
    two, three = (kept_by_torch("llama", layers, precision, OFF) for layers in (2, 3))
    rest = two - 2 * (three - two)
    assert rest == kept_outside(shape_of("llama"), precision, rows=ROWS, length=LENGTH, frozen=False)


@pytest.mark.parametrize("words", [[], ["model.lora.enabled=true", "model.lora.r=4"]], ids=["full", "lora"])
def test_states_of_the_tiny_model_to_the_byte(words: list[str]) -> None:
    """After a real step of AdamW: weights, gradients and both moments, without its counters of steps."""
    from grpo_exp.models.tiny import build_model

    settings = load.to_settings(load.compose(["tracker=none", "algorithm.beta=0.1", *words]))
    model: Any = build_model(settings.model.architecture, 0)  # type: ignore[union-attr, arg-type]
    adapter = build_lora(settings.model.lora)
    if adapter is not None:
        model = get_peft_model(model, adapter)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(8, 60, (2, 12))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    shape = architecture_of(settings.model)
    assert shape is not None
    states = count_states(settings, shape)
    assert states.weights == sum(p.nbytes for p in model.parameters())
    assert states.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert states.optimizer == sum(moment.nbytes for moment in moments)
    # With a KL: a second copy of the weights, or with an adapter none.
    assert states.reference == (0 if words else states.weights)


def test_keys_and_values_of_a_generation_to_the_byte() -> None:
    from transformers import DynamicCache

    shape = shape_of("qwen3")
    model, cache = build("qwen3", shape), DynamicCache()
    model(input_ids=torch.randint(0, 50, (ROWS, LENGTH)), cache=cache, use_cache=True)
    held = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert held == ROWS * cache_bytes(shape, LENGTH, 4)


def test_adapters_have_as_many_weights_as_peft_makes() -> None:
    for lora in (ON, LoraSettings(enabled=True, r=4, target_modules=("q_proj", "down_proj"))):
        adapter = build_lora(lora)
        assert adapter is not None
        model: Any = get_peft_model(build("llama", shape_of("llama")), adapter)
        assert adapter_parameters(shape_of("llama"), lora) == sum(
            p.numel() for p in model.parameters() if p.requires_grad
        )
