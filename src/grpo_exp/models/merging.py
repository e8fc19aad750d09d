"""Write an adapter into the weights of its model, so that anything that loads models loads the result."""

from __future__ import annotations

from pathlib import Path

import torch
from peft import PeftConfig, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from grpo_exp.errors import ConfigError


def merge_adapter(adapter: Path, output: Path, *, base: str | None = None) -> None:
    """Merge in float32, and save in the type that the model itself is stored in.

    Args:
        adapter: Folder with adapter_config.json, the adapter's weights and the tokenizer.
        output: Where the whole model goes; must not exist yet, or be empty.
        base: Folder or hub id of the model below it; None is what adapter_config.json names.

    Raises:
        ConfigError: There is no adapter, its model cannot be loaded, or the output is taken.
    """
    if not (adapter / "adapter_config.json").is_file():
        raise ConfigError(f"{adapter}: holds no adapter_config.json; give model/ of a run with an adapter, or the run")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output}: exists already; give a folder that does not")
    config = PeftConfig.from_pretrained(str(adapter))
    named = base or config.base_model_name_or_path
    if named is None:
        raise ConfigError(f"{adapter}: adapter_config.json names no model; add base=FOLDER")
    revision = None if base else config.revision
    try:
        kept = AutoConfig.from_pretrained(named, revision=revision).dtype
        model = AutoModelForCausalLM.from_pretrained(named, revision=revision, dtype=torch.float32)
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise ConfigError(
            f"{adapter}: its model {named} cannot be loaded ({why}); say where it is with base=FOLDER"
        ) from error
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()  # pyright: ignore[reportCallIssue]
    merged.to(kept or torch.float32).save_pretrained(output)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(output)
