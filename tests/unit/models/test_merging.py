"""A merged model answers as the model with its adapter did, and whoever loads it needs neither adapter nor peft."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

from grpo_exp.commands import merge
from grpo_exp.errors import ConfigError
from grpo_exp.models.lora import build_lora, name_base
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.lora import LoraSettings
from grpo_exp.settings.model import HubModel, LocalModel, TinyArchitecture

SHAPE = TinyArchitecture(
    num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1
)
IDS = torch.arange(8, 20).unsqueeze(0)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, torch.Tensor]:
    """Return the base, a run with an adapter in model/, and the logits of both together."""
    base, run = tmp_path / "base", tmp_path / "run"
    build_model(SHAPE, 0).save_pretrained(base)
    lora = LoraSettings(enabled=True, r=2)
    adapter = build_lora(lora)
    assert adapter is not None
    torch.manual_seed(0)  # lora_A is drawn
    model: Any = get_peft_model(Qwen2ForCausalLM.from_pretrained(base), adapter)
    name_base(model, LocalModel.model_validate({"kind": "local", "path": str(base), "lora": lora}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # begins at 0
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    model.save_pretrained(run / "model")
    build_tokenizer().save_pretrained(run / "model")
    with torch.no_grad():
        return base, run, model(IDS).logits


def test_merged_model_answers_as_both_together(folders: tuple[Path, Path, torch.Tensor], tmp_path: Path) -> None:
    base, run, logits = folders
    assert merge.main([str(run), str(tmp_path / "out")]) == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    with torch.no_grad():
        # W x + B A x against (W + B A) x: rounding of float32, a hundredth of what the adapter does.
        torch.testing.assert_close(merged(IDS).logits, logits, atol=1e-4, rtol=0)
        untrained = Qwen2ForCausalLM.from_pretrained(base)(IDS).logits
    assert (logits - untrained).abs().max() > 1e-2  # the adapter does something


def test_adapter_on_the_weights_of_a_run_names_these_and_not_those_they_were_made_from(tmp_path: Path) -> None:
    """Merged into the model that was fine-tuned before it, it would be a policy that nobody trained."""
    lora = LoraSettings(enabled=True, r=2)
    settings = {"kind": "hub", "path": "an/id", "revision": "v1", "lora": lora, "prime_from": str(tmp_path)}
    config = SimpleNamespace(base_model_name_or_path="an/id", revision="v1")
    name_base(SimpleNamespace(peft_config={"default": config}), HubModel.model_validate(settings))
    assert (config.base_model_name_or_path, config.revision) == (str(tmp_path / "model"), None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["one"], "two folders are wanted"),
        (["{base}", "{out}"], "holds no adapter_config.json"),
        (["{run}", "{base}"], "exists already"),
        (["{run}", "{out}", "base={run}/nowhere"], "cannot be loaded .*say where it is with base=FOLDER"),
    ],
)
def test_what_cannot_be_merged(
    words: list[str], why: str, folders: tuple[Path, Path, torch.Tensor], tmp_path: Path
) -> None:
    base, run, _ = folders
    with pytest.raises(ConfigError, match=why):
        merge.main([word.format(base=base, run=run, out=tmp_path / "out") for word in words])
