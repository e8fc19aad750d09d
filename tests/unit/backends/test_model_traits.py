"""Which models may be laid out anew: told by what they are built of."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from grpo_exp.backends.trl.model_traits import ignores_left_padding, layout_fault


def qwen(**changes: Any) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=32, **changes,
        )
    )  # fmt: skip


def gpt2(**changes: Any) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=32, n_embd=8, n_layer=1, n_head=2, **changes))


def test_rotary_model_without_dropout_is_exact() -> None:
    model = qwen()
    assert layout_fault(model, aux_loss_enabled=False) is None
    assert ignores_left_padding(model)


def test_learned_positions_count_the_padding() -> None:
    assert not ignores_left_padding(gpt2())


@pytest.mark.parametrize(
    ("model", "aux", "start"),
    [
        (qwen, True, "the model's load-balancing loss is taken over each micro-batch"),
        (lambda: qwen(attention_dropout=0.1), False, "the model has attention_dropout above 0"),
        (lambda: gpt2(attn_pdrop=0.0), False, "the model has dropout above 0"),
        (
            lambda: qwen(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            False,
            "the model's rotary scaling (dynamic) depends on the length",
        ),
    ],
)
def test_what_depends_on_the_layout_is_named(model: Any, aux: bool, start: str) -> None:
    fault = layout_fault(model(), aux_loss_enabled=aux)
    assert fault is not None
    assert fault.startswith(start)
