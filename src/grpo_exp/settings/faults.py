"""From pydantic's errors to sentences: what was given, the rule, the fix, with the path a user would type."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from grpo_exp.settings.fields import (
    TAGS,
    example_of,
    find_field,
    groups_with,
    models_of,
    paths_ending_in,
    spell,
    tags_at,
)
from grpo_exp.settings.run import RunSettings

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
#: Pydantic's name of a fault -> the rule, and an example for fields that have none of their own.
_WANTED = {
    "float_parsing": ("a number is wanted", "1e-6"),
    "float_type": ("a number is wanted", "1e-6"),
    "finite_number": ("a finite number is wanted", "1e-6"),
    "int_parsing": ("a whole number is wanted", "8"),
    "int_parsing_size": ("a whole number of fewer digits is wanted", "8"),
    "int_from_float": ("a whole number is wanted", "8"),
    "int_type": ("a whole number is wanted", "8"),
    "number_not_boolean": ("a number is wanted, not a boolean", "8"),
    "bool_parsing": ("true or false is wanted", "true"),
    "bool_type": ("true or false is wanted", "true"),
    "string_type": ("text is wanted", "TEXT"),
    "tuple_type": ("a list is wanted", "'[A,B]'"),
    "dict_type": ("a mapping is wanted", "'{KEY: VALUE}'"),
}
#: Groups of settings inside a group that have files of their own.
_INNER_GROUPS = {"model.lora": "model/lora"}
_INCOMPLETE = {"union_tag_not_found", "too_short"}
_GROUP_WANTED = {"model_type", "model_attributes_type"}


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
    if kind in _INCOMPLETE:
        return _describe_incomplete(detail, path, given, data)
    if kind == "missing":
        return [f"{path}: is missing and has no default; add {path}=VALUE"]
    if kind in {"literal_error", "union_tag_invalid", "enum"}:
        expected = str(context.get("expected") or context.get("expected_tags"))
        return [f"{given}: must be one of {expected}{did_you_mean(value, _quoted(expected))}"]
    example = example_of(find_field(path, data))
    if kind in _WANTED:
        rule, general_example = _WANTED[kind]
        return [f"{given}: {rule}; for example {path}={example or general_example}"]
    if kind in {"greater_than_equal", "greater_than", "less_than_equal", "less_than"}:
        return [f"{given}: {_bound(kind, context, f'for example {path}={example}')}"]
    if kind in _GROUP_WANTED:
        return [f"{given}: is a group of settings and no single value; {_group_fix(path, data)}"]
    return [f"{given}: {detail['msg'][0].lower()}{detail['msg'][1:]}; see `--cfg job` for the shape of {path}"]


def _describe_incomplete(detail: ErrorDetails, path: str, given: str, data: Mapping[str, Any]) -> list[str]:
    """Say what a group without its tag, or a list that is too short, wants."""
    context, value = detail.get("ctx", {}), detail["input"]
    if detail["type"] == "union_tag_not_found":
        tag, options = str(context["discriminator"]).strip("'"), tags_at(path, data)
        chosen = f"one of {', '.join(options)}" if options else "what it is"
        return [f"{path}.{tag}: is missing and says what {path} is; add {tag}: {chosen}"]
    if len(value) >= context["min_length"]:  # a member is wrong, which has a message of its own
        return []
    return [f"{given}: holds {len(value)} values; at least {context['min_length']} is wanted; add what is missing"]


def _group_fix(path: str, data: Mapping[str, Any]) -> str:
    """Say how to set a group: by an option where it is a folder of conf/, else by its settings."""
    if "." not in path or path in _INNER_GROUPS:
        return f"choose {_INNER_GROUPS.get(path, path)}=OPTION (--help lists them)"
    field = find_field(path, data)
    names = list(models_of(field.annotation)[0].model_fields) if field is not None else []
    return f"set what is in it: {', '.join(f'{path}.{name}=VALUE' for name in names) or f'{path}.KEY=VALUE'}"


def unknown_key(path: str, siblings: Iterable[str]) -> str:
    """Return the message for a setting that does not exist, with near names."""
    parent, _, key = path.rpartition(".")
    prefix = f"{parent}." if parent else ""
    names = sorted(siblings)
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.6)
    elsewhere = groups_with(path)
    if elsewhere:
        return f"{path}: is a setting of {' and '.join(elsewhere)} only; choose that, or leave {path} out"
    same_name = [] if close and close[0] == key else paths_ending_in(key)[:3]
    if close or same_name:
        likely = same_name or [prefix + name for name in close]
        return f"{path}: there is no such setting; did you mean {' or '.join(likely)}?"
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
        is_tag = isinstance(node, Mapping) and part not in node and part in {node.get(tag) for tag in TAGS}
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
    close = nearest(str(value), options, cutoff=0.5)
    return f"; did you mean {close}?" if close else ""


def nearest(text: str, options: Sequence[str], *, cutoff: float) -> str | None:
    """Return the option spelled most like the text, or None; one of the same letters first (dpao: dapo, not gdpo)."""
    close = difflib.get_close_matches(text, options, n=3, cutoff=cutoff)
    swapped = [option for option in close if sorted(option) == sorted(text)]
    return next(iter([*swapped, *close]), None)


def _quoted(expected: str) -> list[str]:
    return [part for part in expected.replace(" or ", ", ").replace("'", "").split(", ") if part]


def _bound(kind: str, context: Mapping[str, Any], example: str) -> str:
    """Return the rule and the nearest value that keeps it; an open bound has none, so an example stands for it."""
    word, key, fix = {
        "greater_than_equal": ("at least", "ge", "use {} or more"),
        "greater_than": ("above", "gt", f"use a value above {{}}, {example}"),
        "less_than_equal": ("at most", "le", "use {} or less"),
        "less_than": ("below", "lt", f"use a value below {{}}, {example}"),
    }[kind]
    limit = spell(context[key])
    return f"must be {word} {limit}; {fix.format(limit)}"


def _show(value: Any) -> str:
    """Return a value as it arrived: a float keeps its point, which tells why a text is refused."""
    is_text = isinstance(value, str) and not value.replace("_", "a").isalnum()
    text = repr(value) if is_text else spell(value) if isinstance(value, bool | None) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
