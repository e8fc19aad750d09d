"""How many tokens a prompt has, counted without torch: by the model's own tokenizer file and chat template."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import TemplateError

from grpo_exp.data.chat_text import (
    build_renderer,
    fix_template,
    load_chat_template,
    load_special_tokens,
    read_chat_template,
)
from grpo_exp.data.prompts import Message
from grpo_exp.errors import ConfigError
from grpo_exp.settings.model import ModelSettings, PretrainedModel

#: Files of a model that say how text becomes tokens.
_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
#: Prompts that are turned into tokens at once.
_BATCH = 1000
#: Of the built-in policy: what is one token; a test holds this against its tokenizer.
_TINY_TOKEN = re.compile(r"<think>|</think>|\\boxed\{|[\s\S]")

CountTokens = Callable[[Sequence[Sequence[Message]]], list[int]]


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts tokens as one model reads them."""

    identity: str
    """Changes whenever the counts may change."""
    count: CountTokens
    """From conversations to their tokens, chat template and opening of the answer included."""


def build_counter(model: ModelSettings) -> TokenCounter:
    """Return the counter of a model.

    Raises:
        ConfigError: The model's tokenizer file or chat template is not at hand.
    """
    if model.kind == "tiny":
        return TokenCounter("tiny", lambda prompts: [_count_tiny(messages) for messages in prompts])
    if model.kind == "smollm2_bundled":
        raise _not_countable("smollm2_bundled", "its tokenizer is read by transformers alone")
    assert model.path is not None  # their validators refuse a null path
    return _from_folder(tokenizer_folder(model.path, model.revision), model, model.path)


def _count_tiny(messages: Sequence[Message]) -> int:
    """One token a character and tag of the format; one for each role, one behind what the assistant said."""
    written = sum(len(_TINY_TOKEN.findall(message["content"])) for message in messages)
    return written + sum(2 if message["role"] == "assistant" else 1 for message in messages) + 1


def tokenizer_folder(path: str, revision: str | None) -> Path:
    """Return the model's folder; of a model on the hub one that holds its tokenizer's files."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download  # only here: it takes a third of a second

    try:
        return Path(snapshot_download(path, revision=revision, allow_patterns=list(_FILES)))
    except Exception as error:  # no network, no such model, no permission: what it raises are many classes
        raise _not_countable(path, f"{type(error).__name__}: {error}".splitlines()[0]) from error


def _from_folder(folder: Path, model: PretrainedModel, name: str) -> TokenCounter:
    from tokenizers import Tokenizer

    file, template = folder / "tokenizer.json", _template_of(folder, model, name)
    if not file.is_file():
        raise _not_countable(name, "it has no tokenizer.json")
    if template is None:
        raise _not_countable(name, "it has no chat template")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # what the library raises for a broken file
        raise _not_countable(name, f"its tokenizer.json cannot be read: {error}") from error
    try:
        render = build_renderer(fix_template(template, model.chat_template_kwargs), load_special_tokens(folder))
    except TemplateError as error:
        raise _not_countable(name, f"its chat template cannot be read: {error}") from error
    prefill = model.reasoning_prefill or ""

    def count(prompts: Sequence[Sequence[Message]]) -> list[int]:
        counts: list[int] = []
        for start in range(0, len(prompts), _BATCH):
            try:
                texts = [_prefilled(render(messages), prefill) for messages in prompts[start : start + _BATCH]]
            except TemplateError as error:
                raise _not_countable(name, f"its chat template refuses a prompt: {error}") from error
            counts += [len(found.ids) for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        return counts

    fixed = json.dumps([template, model.chat_template_kwargs, prefill], sort_keys=True)
    return TokenCounter(hashlib.sha256(file.read_bytes() + fixed.encode()).hexdigest(), count)


def _template_of(folder: Path, model: PretrainedModel, name: str) -> str | None:
    if model.chat_template is None:
        return load_chat_template(folder)
    try:
        return read_chat_template(model.chat_template)
    except (OSError, UnicodeDecodeError) as error:
        raise _not_countable(name, f"model.chat_template={model.chat_template} cannot be read: {error}") from error


def _prefilled(text: str, prefill: str) -> str:
    """Open the answer as the run does: where the template does not do it already."""
    return text if not prefill or text.rstrip().endswith(prefill.strip()) else text + prefill


def _not_countable(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"dataset.max_prompt_length: the tokens of prompts cannot be counted for the model {name} ({why}); use "
        "dataset.max_prompt_length=null, or a model in a local folder with tokenizer.json and a chat template"
    )
