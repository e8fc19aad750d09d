"""From pydantic's errors to sentences: what was given, the rule, the fix, with the path a user would type."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from grpo_exp.settings.run import RunSettings

_TAGS = ("kind", "mode")
#: One or several fields at the start of a validator's sentence.
_FIELDS = re.compile(r"[\w.]+(?:(?:, | \+ )[\w.]+)*")
#: Rounds of leaving wrong values out; each finds what the last one hid.
_MAX_ROUNDS = 4
#: For fields without a default, while the rest is looked at.
_STAND_INS = {
    "learning_rate": 1e-6,
    "max_completion_length": 20,
    "loss_type": "grpo",
    "scale_rewards": "group",
    "name": "run",
    "citation": "-",
}
_NUMBER_TYPES = {"float_parsing": "a number", "int_parsing": "a whole number", "int_from_float": "a whole number",
                 "float_type": "a number", "int_type": "a whole number", "finite_number": "a finite number",
                 "bool_parsing": "true or false", "bool_type": "true or false"}  # fmt: skip


def describe_faults(error: ValidationError, data: Mapping[str, Any]) -> list[str]:
    """Return one message per fault, in the order of the settings.

    Args:
        error: What pydantic raised.
        data: The values it was given, to tell tags of unions from keys and to name near spellings.
    """
    faults: list[str] = []
    for detail in error.errors(include_url=False):
        faults += _describe(detail, data)
    return list(dict.fromkeys(faults))


def all_faults(error: ValidationError, data: Mapping[str, Any]) -> list[str]:
    """Return the faults of `error`, and those that pydantic did not look for because of them.

    A rule over several fields is not asked while one of the fields is wrong. So wrong values are left out, which puts
    the defaults in their place, and the rest is looked at again.
    """
    found = describe_faults(error, data)
    rest: dict[str, Any] = copy.deepcopy(dict(data))
    for _ in range(_MAX_ROUNDS):
        for detail in error.errors(include_url=False):
            _leave_out(rest, detail)
        try:
            RunSettings.model_validate(rest)
        except ValidationError as next_error:
            if next_error.errors(include_url=False) == error.errors(include_url=False):
                break
            error = next_error
        else:
            break
        hidden = [d for d in error.errors(include_url=False) if d["type"] != "missing"]
        found += [message for detail in hidden for message in _describe(detail, data)]
    return list(dict.fromkeys(found))


def _leave_out(data: dict[str, Any], detail: ErrorDetails) -> None:
    """Take the value of a fault out of `data`, where it is a single value; a group as a whole stays."""
    path, _ = _path_and_parent(detail["loc"], data)
    *parents, key = path.split(".")
    node: Any = data
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if isinstance(node, dict) and key in node and not isinstance(node[key], dict):
        del node[key]
        if key in _STAND_INS:
            node[key] = _STAND_INS[key]


def _describe(detail: ErrorDetails, data: Mapping[str, Any]) -> list[str]:
    path, parent = _path_and_parent(detail["loc"], data)
    kind, context = detail["type"], detail.get("ctx", {})
    value = detail["input"]
    if kind == "union_tag_invalid":  # pydantic reports the whole group; the user typed its tag
        path, value = f"{path}.{context['discriminator'].strip(chr(39))}", context["tag"]
    given = f"{path}={_show(value)}"
    if kind == "value_error":
        text = str(context.get("error", detail["msg"]))
        return [_own_sentence(path, line, detail["input"]) for line in text.splitlines()]
    if kind == "extra_forbidden":
        return [unknown_key(path, siblings=_known_keys(parent, path))]
    if kind == "missing":
        return [f"{path}: is missing and has no default; add {path}=VALUE"]
    if kind in {"literal_error", "union_tag_invalid", "enum"}:
        expected = str(context.get("expected") or context.get("expected_tags"))
        return [f"{given}: must be one of {expected}{did_you_mean(value, _quoted(expected))}"]
    if kind in _NUMBER_TYPES:
        return [f"{given}: {_NUMBER_TYPES[kind]} is wanted; for example {path}={_example(kind)}"]
    if kind in {"greater_than_equal", "greater_than", "less_than_equal", "less_than"}:
        return [f"{given}: {_bound(kind, context)}"]
    return [f"{given}: {detail['msg'][0].lower()}{detail['msg'][1:]}; see `--cfg job` for the shape of {path}"]


def unknown_key(path: str, siblings: Iterable[str]) -> str:
    """Return the message for a setting that does not exist, with near names."""
    parent, _, key = path.rpartition(".")
    prefix = f"{parent}." if parent else ""
    names = sorted(siblings)
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.6)
    if close:
        return f"{path}: there is no such setting; did you mean {' or '.join(prefix + name for name in close)}?"
    if not names:
        return f"{path}: is new, and new keys are marked with a plus: +{path}=VALUE"
    where = f"below {parent}" if parent else "at the top"
    return f"{path}: there is no such setting; the settings {where} are {', '.join(names)}"


def _own_sentence(path: str, line: str, value: Any) -> str:
    """Join the path of a validator's group with its sentence, which starts with `field: `."""
    field, colon, rest = line.partition(": ")
    if colon and _FIELDS.fullmatch(field) and isinstance(value, Mapping):
        names = ", ".join(f"{path}.{name}" if path else name for name in field.split(", "))
        return f"{names}: {rest}"
    shown = "" if isinstance(value, Mapping) else f"={_show(value)}"
    return f"{path}{shown}: {line}"


def _path_and_parent(location: Sequence[str | int], data: Any) -> tuple[str, Any]:
    """Return the dotted path without the tags of pydantic's unions, and the value around the last key."""
    keys: list[str] = []
    node, parent = data, data
    for part in location:
        is_tag = isinstance(node, Mapping) and part not in node and part in {node.get(tag) for tag in _TAGS}
        if is_tag:
            continue
        keys.append(str(part))
        parent = node
        if isinstance(node, Mapping):
            node = node.get(part)
        elif isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            node = None
    return ".".join(keys), parent


def _known_keys(parent: Any, path: str) -> list[str]:
    key = path.rpartition(".")[2]
    return [k for k in parent if k != key] if isinstance(parent, Mapping) else []


def did_you_mean(value: Any, options: Sequence[str]) -> str:
    """Return `; did you mean X?` for the nearest option, or nothing where none is near."""
    """Return `; did you mean X?` for the option that is nearest, or nothing."""
    close = difflib.get_close_matches(str(value), options, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _quoted(expected: str) -> list[str]:
    return [part for part in expected.replace(" or ", ", ").replace("'", "").split(", ") if part]


def _bound(kind: str, context: Mapping[str, Any]) -> str:
    word, key, fix = {
        "greater_than_equal": ("at least", "ge", "use {} or more"),
        "greater_than": ("above", "gt", "use a value above {}"),
        "less_than_equal": ("at most", "le", "use {} or less"),
        "less_than": ("below", "lt", "use a value below {}"),
    }[kind]
    limit = context[key]
    return f"must be {word} {limit}; {fix.format(limit)}"


def _example(kind: str) -> str:
    return {"float_parsing": "1e-6", "float_type": "1e-6", "finite_number": "1e-6",
            "bool_parsing": "true", "bool_type": "true"}.get(kind, "8")  # fmt: skip


def _show(value: Any) -> str:
    text = repr(value) if isinstance(value, str) and not value.replace("_", "a").isalnum() else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
