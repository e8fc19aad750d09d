"""Weights in 4 bits: linear layers are held as the memory plan says, and an adapter beside them gets gradients."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model

from grpo_exp.models.load import load_policy
from grpo_exp.models.lora import build_lora
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import LocalModel, TinyArchitecture

SHAPE = TinyArchitecture(
    num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=2, num_key_value_heads=1
)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs pip install bitsandbytes")
def test_layers_are_held_as_the_plan_says(tmp_path: Path) -> None:
    """2 layers x (2 x 64 x 64 + 2 x 64 x 32 + 3 x 64 x 128) weights of half a byte, without their scales."""
    build_model(SHAPE, 0).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    settings = LocalModel.model_validate(
        {"kind": "local", "path": str(tmp_path), "lora": {"enabled": True, "quantization": "nf4"}}
    )
    loaded: Any = load_policy(settings, on_priming_step=lambda step, loss: None)
    layers = [m for m in loaded[0].modules() if type(m).__name__ == "Linear4bit"]
    assert sum(layer.weight.nbytes for layer in layers) == 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) // 2
    assert loaded[0].model.embed_tokens.weight.dtype == torch.bfloat16
    adapter = build_lora(settings.lora)
    assert adapter is not None
    model: Any = get_peft_model(loaded[0], adapter)
    ids = torch.randint(8, 60, (2, 12))
    model(input_ids=ids, labels=ids).loss.backward()
    assert sum(p.grad.abs().sum() for p in model.parameters() if p.requires_grad) > 0
    assert all("lora_" in name for name, p in model.named_parameters() if p.requires_grad)
