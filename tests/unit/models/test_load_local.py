"""A model in a local folder: its tokenizer, its type, and what is said where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grpo_exp.errors import ConfigError
from grpo_exp.models.load import load_policy
from grpo_exp.models.pretrained import load_tokenizer_from
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import LocalModel, TinyArchitecture
from unit.random_models import save_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("local") / "model"
    shape = TinyArchitecture(
        num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1
    )
    build_model(shape, 0).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


def load(path: Path, dtype: str = "float32") -> tuple[object, object]:
    settings = LocalModel.model_validate({"kind": "local", "path": str(path), "dtype": dtype})
    return load_policy(settings, on_priming_step=lambda step, loss: pytest.fail("no other model is primed"))


@pytest.mark.parametrize(("dtype", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_weights_have_the_type_of_the_settings(dtype: str, expected: torch.dtype, folder: Path) -> None:
    model, tokenizer = load(folder, dtype)
    assert model.dtype == expected  # type: ignore[attr-defined]
    assert tokenizer.padding_side == "left"  # type: ignore[attr-defined]


def test_folder_without_a_model_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model\.path=.*: cannot be loaded .*; give a folder written by save_pretrained"
    ):
        load(tmp_path)


def test_tokenizer_without_a_chat_template_names_the_fix(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in folder.iterdir():
        if "chat_template" not in file.name:
            (bare / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match=r"has no chat template.*add chat_template\.jinja"):
        load(bare)


def test_prompts_can_be_padded_where_the_tokenizer_has_no_token_for_it(tmp_path: Path) -> None:
    """As Llama 3.2's. Whoever samples from it pads prompts of unequal length, with or without a trainer of TRL."""
    tokenizer = save_tokenizer(tmp_path)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    settings = LocalModel.model_validate({"kind": "local", "path": str(tmp_path)})
    loaded = load_tokenizer_from(settings, tmp_path, name="model.path=m")
    assert loaded.pad_token == loaded.eos_token == "<|im_end|>"
    assert loaded(["1+1?", "1?"], padding=True)["attention_mask"] == [[1, 1, 1, 1], [0, 0, 1, 1]]
