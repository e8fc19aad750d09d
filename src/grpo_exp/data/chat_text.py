"""A conversation as text, by the chat template of a model's folder, and what is fixed in such a template.

Transformers writes it, too, and imports torch for it; a test holds this against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from grpo_exp.data.prompts import Message
from grpo_exp.settings.pretrained_model import PLAIN

#: Special tokens that templates name.
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")

#: What a template reads on the calendar. Llama 3.2's names this day where it finds no calendar.
_TODAY = date(2024, 7, 26)
_CALENDAR = re.compile(r"""strftime_now\(\s*(["'])(?P<form>[^"']*)\1\s*\)""")
_ASSIGNMENT = re.compile(r"\{%- set (?P<name>\w+) = ")
_END = " %}"
#: Marks around what the assistant said, for losses; they write nothing.
_MARK = re.compile(r"\{%(-?)\s*(end)?generation\s*(-?)%\}")

#: The text of the messages with a line between them; the answer follows at once.
_PLAIN_TEMPLATE = r"{{ messages | map(attribute='content') | join('\n\n') }}"

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


def read_chat_template(named: str) -> str:
    """Return the text of the template that `model.chat_template` names.

    Raises:
        OSError: The file cannot be read.
        UnicodeDecodeError: It is none of text.
    """
    return _PLAIN_TEMPLATE if named == PLAIN else Path(named).expanduser().read_text(encoding="utf-8")


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


def fix_template(template: str, variables: Mapping[str, bool | float | str]) -> str:
    """Return a template that writes the same prompts on every day, with the values of some variables in it.

    Templates like those of Llama 3.2 write today's date into the system message, so that a run which goes on tomorrow
    would train on other prompts than it was started with.

    Args:
        template: Jinja text; values that were written into it earlier, as by a run that saved it, give way.
        variables: Name -> value.
    """
    dated = _CALENDAR.sub(lambda call: json.dumps(_TODAY.strftime(call["form"])), template)
    assignments = "".join(f"{{%- set {name} = {json.dumps(value)}{_END}" for name, value in variables.items())
    return assignments + _without_values_of(dated, variables)


def _without_values_of(template: str, names: Mapping[str, Any]) -> str:
    """Return a template without the assignments to these variables that `fix_template` put at its start."""
    kept, place = "", 0
    while (found := _ASSIGNMENT.match(template, place)) is not None:
        try:
            _, end = json.JSONDecoder().raw_decode(template, found.end())
        except ValueError:
            break  # an expression: the template's own
        if not template.startswith(_END, end):
            break
        after = end + len(_END)
        kept += "" if found["name"] in names else template[place:after]
        place = after
    return kept + template[place:]


def build_renderer(template: str, variables: Mapping[str, Any]) -> Render:
    """Return what writes a conversation with the opening of the answer behind it.

    Args:
        template: Jinja text, as transformers reads it.
        variables: What the template knows besides: special tokens as `bos_token` and so on, switches of the model's.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _TODAY.strftime
    compiled = environment.from_string(_MARK.sub(_as_condition, template))
    given = {"add_generation_prompt": True, "tools": None, "documents": None, **variables}

    def render(messages: Sequence[Message]) -> str:
        return compiled.render(messages=[dict(message) for message in messages], **given)

    return render


def _as_condition(mark: re.Match[str]) -> str:
    return f"{{%{mark[1]} {'endif' if mark[2] else 'if true'} {mark[3]}%}}"


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
