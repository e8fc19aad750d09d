"""A conversation as text, by the chat template of a model's folder.

Transformers does it, too, and imports torch for it; a test holds this against it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from grpo_exp.data.prompts import Message

#: Special tokens that templates name.
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")

Render = Callable[[Sequence[Message]], str]


def load_chat_template(folder: Path) -> str | None:
    """Return the text of the default chat template in a model's folder, or None where it has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = _read(folder / name).get("chat_template")
        if isinstance(found, list):  # several by name
            found = next((entry.get("template") for entry in found if entry.get("name") == "default"), None)
        if isinstance(found, str):
            return found
    return None


def load_special_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens that a model's folder names."""
    found: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        content = _read(folder / name)
        for key in _SPECIAL:
            value = content.get(key)
            value = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(value, str):
                found[key] = value
    return found


def build_renderer(template: str, variables: Mapping[str, Any]) -> Render:
    """Return what writes a conversation with the opening of the answer behind it.

    Args:
        template: Jinja text, as transformers reads it.
        variables: What the template knows besides: special tokens as `bos_token` and so on, switches of the model's.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: "2026-01-01"  # of a length like any other day's
    compiled = environment.from_string(template)
    given = {"add_generation_prompt": True, "tools": None, "documents": None, **variables}

    def render(messages: Sequence[Message]) -> str:
        return compiled.render(messages=[dict(message) for message in messages], **given)

    return render


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}  # told by whoever loads the model
    return content if isinstance(content, dict) else {}
