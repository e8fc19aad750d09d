"""Shapes in the presets: as many parameters as the makers say, and as the real module has."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from architecture.checkout import CHECKOUT
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.settings import load
from grpo_exp.settings.architecture import Architecture, from_model_config
from grpo_exp.settings.model import ModelSettings

COMMIT = "0123456789abcdef" * 2 + "01234567"  # 40 digits, as git has them
#: Parameters in billions, as the model cards write them.
PUBLISHED = {
    "llama3_2_1b": "1.24", "llama3_2_3b": "3.21", "qwen2_5_0_5b": "0.49", "qwen2_5_1_5b": "1.54",
    "qwen2_5_3b": "3.09", "qwen2_5_7b": "7.62", "qwen2_5_math_1_5b": "1.54", "qwen2_5_math_7b": "7.62",
    "qwen3_0_6b": "0.6", "qwen3_1_7b": "1.7", "qwen3_4b": "4.0", "r1_distill_qwen_1_5b": "1.78",
    "smollm2_135m": "0.135", "smollm2_bundled": "0.135",
}  # fmt: skip
CONFIGS: dict[str, Any] = {"llama": LlamaConfig, "smollm2": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config,
                           "r1": Qwen2Config}  # fmt: skip


@cache
def model_of(preset: str) -> ModelSettings:
    return load.to_settings(load.compose([f"model={preset}"])).model


def shape_of(preset: str) -> Architecture:
    shape = architecture_of(model_of(preset))
    assert shape is not None
    return shape


def config_of(preset: str, shape: Architecture) -> Any:
    kind = next(kind for start, kind in CONFIGS.items() if preset.startswith(start))
    names = set(Architecture.model_fields) - {"attention_bias", "query_key_norm"}
    return kind(**{name: getattr(shape, name) for name in names})


def test_every_preset_with_a_shape_is_looked_at() -> None:
    presets = {path.stem for path in (CHECKOUT / "conf" / "model").glob("*.yaml")}
    assert presets == PUBLISHED.keys() | {"tiny", "local", "hub"}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_parameters_are_those_of_the_model_card(preset: str) -> None:
    text = PUBLISHED[preset]
    digits = len(text.partition(".")[2])
    assert f"{shape_of(preset).num_parameters / 1e9:.{digits}f}" == text


@pytest.mark.parametrize("preset", PUBLISHED)
def test_parameters_are_those_of_the_real_module(preset: str) -> None:
    """Built without memory for its weights; what is tied counts once."""
    shape = shape_of(preset)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(preset, shape))
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    layer = model.model.layers[0]
    linear = {name: (m.in_features, m.out_features) for name, m in layer.named_modules() if hasattr(m, "in_features")}
    assert {name.rpartition(".")[2]: sizes for name, sizes in linear.items()} == shape.linear_shapes


@pytest.mark.parametrize("preset", ["llama3_2_1b", "qwen2_5_7b", "qwen3_4b", "r1_distill_qwen_1_5b"])
def test_a_config_file_tells_the_same_shape(preset: str, tmp_path: Path) -> None:
    config_of(preset, shape_of(preset)).save_pretrained(tmp_path)
    assert from_model_config(json.loads((tmp_path / "config.json").read_text())) == shape_of(preset)


@pytest.mark.parametrize(
    "config",
    [{}, {"model_type": "gpt2", "n_embd": 8}, {"model_type": "qwen2", "num_attention_heads": 0, "hidden_size": 8},
     {"model_type": "llama", "num_attention_heads": 2, "hidden_size": "wide"}],
)  # fmt: skip
def test_shapes_that_are_not_known_are_none(config: dict[str, Any]) -> None:
    assert from_model_config(config) is None


def test_shape_of_the_built_in_policy_is_that_of_its_module() -> None:
    """Its vocabulary is counted without the tokenizer."""
    from grpo_exp.models.tiny import build_model

    model = load.to_settings(load.compose([])).model
    assert model.kind == "tiny"
    shape = architecture_of(model)
    assert shape is not None
    assert shape.num_parameters == sum(p.numel() for p in build_model(model.architecture, 0).parameters())


def test_shape_in_the_cache_of_the_hub_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out as huggingface_hub does: refs/main names the commit, snapshots/COMMIT holds the files."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--name"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    config_of("qwen3_0_6b", shape_of("qwen3_0_6b")).save_pretrained(snapshot)
    words = ["model=hub", "model.path=org/name"]
    assert architecture_of(load.to_settings(load.compose(words)).model) == shape_of("qwen3_0_6b")
    assert architecture_of(load.to_settings(load.compose([*words, f"model.revision={COMMIT}"])).model) is not None
    assert architecture_of(load.to_settings(load.compose([*words, "model.revision=other"])).model) is None
