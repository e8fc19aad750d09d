"""The built-in policy: a small Qwen2 with random weights, primed once and cached by what it is made of."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import types
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from grpo_exp import paths
from grpo_exp.data import arithmetic
from grpo_exp.models import example_tokens, priming, tokenizer
from grpo_exp.settings.model import TinyArchitecture, TinyModel
from grpo_exp.whole_folders import build_folder


def load_tiny(
    settings: TinyModel, *, on_step: Callable[[int, float], None] = lambda step, loss: None
) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return the primed policy and its tokenizer, building them on first use.

    Args:
        settings: Shape and priming.
        on_step: Called after each priming step with its number and loss; never where the cache has it.
    """
    folder = cached_folder(settings)
    if not folder.is_dir():
        _build_into(folder, settings, on_step)
    return load_tiny_from(folder)


def load_tiny_from(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Return a policy that was saved into a folder, and the tokenizer."""
    model = Qwen2ForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    return model, tokenizer.build_tokenizer()


def cached_folder(settings: TinyModel) -> Path:
    """Return where the primed policy is kept: its name is a hash of settings and of the code that primes."""
    made_of = {
        "architecture": settings.architecture.model_dump(),
        "priming": settings.priming.model_dump(),
        "code": [_code_hash(module) for module in (arithmetic, example_tokens, priming, tokenizer)],
    }
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
    return paths.cache_dir() / f"tiny-{digest}"


def build_model(architecture: TinyArchitecture, seed: int) -> Qwen2ForCausalLM:
    """Return the network with random weights, a function of the seed; the global generator is not touched."""
    alphabet = tokenizer.build_tokenizer()
    pad, eos = alphabet.encode(tokenizer.PAD + tokenizer.EOS, add_special_tokens=False)
    config = Qwen2Config(
        vocab_size=len(alphabet),
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=None,
        **architecture.model_dump(),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def _build_into(folder: Path, settings: TinyModel, on_step: Callable[[int, float], None]) -> None:
    model, alphabet = build_model(settings.architecture, settings.priming.seed), tokenizer.build_tokenizer()
    folder.parent.mkdir(parents=True, exist_ok=True)  # first: priming takes a minute
    priming.prime(model, alphabet, settings.priming, on_step=on_step)
    with build_folder(folder) as partial:
        model.save_pretrained(partial)
        alphabet.save_pretrained(partial)
        (partial / "settings.json").write_text(settings.model_dump_json(indent=2))


def _code_hash(module: types.ModuleType) -> str:
    """Hash what the code says, not how it is laid out: reformatting must not cost a priming."""
    return hashlib.sha256(ast.dump(ast.parse(inspect.getsource(module))).encode()).hexdigest()
