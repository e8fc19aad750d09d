"""Whether a value from a configuration fits a type that is only known as source text."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any

#: Words for a type, and the spelling of a value of it.
_WORDS = {
    "int": ("a whole number", "8"),
    "float": ("a number", "0.1"),
    "bool": ("true or false", "true"),
    "str": ("text", "TEXT"),
    "dict": ("a mapping", "'{KEY: VALUE}'"),
    "list": ("a list", "'[A,B]'"),
    "None": ("null", "null"),
}
_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "1": "true",
             "no": "false", "off": "false", "false": "false", "0": "false"}  # fmt: skip
_NULLS = {"none", "null", "~", ""}


def type_fault(path: str, value: Any, annotation: ast.expr) -> str | None:
    """Return a message where `value` is not of the annotated type, with the right spelling, else None.

    Args:
        path: Where the value stands.
        value: A plain value of a configuration.
        annotation: int, float, bool, str, dict, list, None, Any, Literal and unions of these; any other class is an
            object of Python, which no configuration can hold.
    """
    members = list(_members(annotation))
    if any(_fits(value, member) for member in members):
        return None
    options = list(dict.fromkeys(word for member in members for word in _words(member)))
    spelling = _right_spelling(value, members) or _example(members)
    given = repr(value) if isinstance(value, str) else str(value)
    return f"{path}={given}: {' or '.join(options)} is wanted; for example +{path}={spelling}"


def _members(annotation: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of a union, however it is written."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _members(left)
            yield from _members(right)
        case ast.Subscript(value=head, slice=inner) if _name(head) == "Optional":
            yield from _members(inner)
            yield ast.Constant(None)
        case ast.Subscript(value=head, slice=ast.Tuple(elts=elements)) if _name(head) == "Union":
            for element in elements:
                yield from _members(element)
        case ast.Constant(value=str() as quoted):
            yield from _members(ast.parse(quoted, mode="eval").body)
        case _:
            yield annotation


def _name(member: ast.expr) -> str:
    """Return the bare name of a type: `dict` for `dict[str, Any]` and `Dict`, `None` for None."""
    match member:
        case ast.Subscript(value=value):
            return _name(value)
        case ast.Name(id=name):
            return name.lower() if name in {"Dict", "List"} else name
        case ast.Attribute(attr=name):
            return name
        case ast.Constant(value=None):
            return "None"
    return ast.unparse(member)


def _fits(value: Any, member: ast.expr) -> bool:
    name = _name(member)
    if name == "Literal":
        return any(value == choice and type(value) is type(choice) for choice in _choices(member))
    if name == "list":
        return isinstance(value, list | tuple) and all(_element_fits(element, member) for element in value)
    checks: dict[str, Callable[[Any], bool]] = {
        "Any": lambda v: True,
        "None": lambda v: v is None,
        "bool": lambda v: isinstance(v, bool),
        "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
        "float": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v),
        # The text None is a misspelt null wherever null is allowed, and no value of TRL's elsewhere.
        "str": lambda v: isinstance(v, str) and v.strip().lower() not in _NULLS - {""},
        "dict": lambda v: isinstance(v, dict),
    }
    return name in checks and checks[name](value)


def _element_fits(value: Any, member: ast.expr) -> bool:
    if not isinstance(member, ast.Subscript):
        return True
    return any(_fits(value, part) for part in _members(member.slice))


def _choices(member: ast.expr) -> list[Any]:
    assert isinstance(member, ast.Subscript)
    elements = member.slice.elts if isinstance(member.slice, ast.Tuple) else [member.slice]
    return [ast.literal_eval(element) for element in elements]


def _words(member: ast.expr) -> list[str]:
    name = _name(member)
    if name == "Literal":
        return [_spell(choice) for choice in _choices(member)]
    if name == "list" and isinstance(member, ast.Subscript):
        inner = [_WORDS[_name(part)][0] for part in _members(member.slice) if _name(part) in _WORDS]
        return [f"a list, each of it {' or '.join(inner)}"] if inner else []
    return [_WORDS[name][0]] if name in _WORDS else []


def _example(members: list[ast.expr]) -> str:
    for member in members:
        name = _name(member)
        if name == "Literal":
            return _spell(_choices(member)[0])
        if name in _WORDS:
            return _WORDS[name][1]
    return "null"


def _right_spelling(value: Any, members: list[ast.expr]) -> str | None:
    """Return how to write what was probably meant: a number without quotes, true for yes, null for None."""
    names = {_name(member) for member in members}
    text = str(value).strip().lower()
    if "None" in names and text in _NULLS:
        return "null"
    if "bool" in names and text in _BOOLEANS:
        return _BOOLEANS[text]
    if names & {"int", "float"} and not isinstance(value, bool):
        return _number_spelling(text, is_float="float" in names)
    return None


def _number_spelling(text: str, *, is_float: bool) -> str | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if is_float:
        return text
    return str(round(number)) if number == round(number) else None


def _spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
