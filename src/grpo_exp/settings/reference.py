"""The reference of all settings as Markdown, out of the models and the texts under their fields."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from grpo_exp.settings.fields import TAGS, bounds_of, models_of, parts_of, spell

_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "null"}


def build_reference(model: type[BaseModel], *, only: str | None = None) -> str:
    """Return a table for each group of settings below a model.

    Args:
        model: The outermost settings.
        only: Name of one group at the top; None is all of them.
    """
    names = [name for name, field in model.model_fields.items() if not _groups(field)]
    parts = [] if only is not None else ["## At the top", "", *_table(model, names, ""), ""]
    for name, field in model.model_fields.items():
        if _groups(field) and only in {None, name}:
            parts += _section(name, field, depth=2)
    return "\n".join(parts)


def _groups(field: FieldInfo) -> list[type[BaseModel]]:
    return models_of(field.annotation)


def _section(path: str, field: FieldInfo, *, depth: int) -> Iterator[str]:
    """Yield the lines of a group: one table for each of its kinds, and its own groups behind."""
    for model in _groups(field):
        tag = next((t for t in TAGS if t in model.model_fields and len(_choices(model.model_fields[t])) == 1), None)
        title = f"`{path}`" if tag is None else f"`{path}` with `{path}.{tag}={_choices(model.model_fields[tag])[0]}`"
        text = (inspect.getdoc(model) or "").partition("\n\n")[0].replace("\n", " ")
        yield from (f"{'#' * min(depth, 4)} {title}", "", text, "")
        plain = [name for name, each in model.model_fields.items() if not _groups(each) and name != tag]
        if plain:
            yield from (*_table(model, plain, f"{path}."), "")
        for name, each in model.model_fields.items():
            if _groups(each):
                is_mapping = typing.get_origin(_bare(each.annotation)) is dict
                yield from _section(f"{path}.{name}{'.NAME' if is_mapping else ''}", each, depth=depth + 1)


def _table(model: type[BaseModel], names: list[str], prefix: str) -> Iterator[str]:
    yield "| setting | values | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name in names:
        field = model.model_fields[name]
        cells = (f"`{prefix}{name}`", _values(field), _default(field), documentation_of(model).get(name, ""))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _bare(annotation: Any) -> Any:
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _choices(field: FieldInfo) -> tuple[Any, ...]:
    found = [part for part in parts_of(field.annotation) if typing.get_origin(part) is typing.Literal]
    return tuple(choice for part in found for choice in typing.get_args(part))


def _values(field: FieldInfo) -> str:
    choices = _choices(field)
    words = [f"`{spell(choice)}`" for choice in choices]
    bare = _bare(field.annotation)
    origin = typing.get_origin(bare)
    if origin in {dict, tuple, list, set}:
        words.append("mapping" if origin is dict else "list")
    else:
        plain = dict.fromkeys(part for part in parts_of(field.annotation) if part in _NAMES)
        words += [_NAMES[part] + (_range(field) if part in {int, float} else "") for part in plain]
    return ", ".join(dict.fromkeys(words)) or "any"


def _range(field: FieldInfo) -> str:
    bounds, words = bounds_of(field), []
    for bound in (*bounds.lower, *bounds.upper):
        match bound:
            case Ge(ge=value):
                words.append(f">= {spell(value)}")
            case Gt(gt=value):
                words.append(f"> {spell(value)}")
            case Le(le=value):
                words.append(f"<= {spell(value)}")
            case Lt(lt=value):
                words.append(f"< {spell(value)}")
    return f" {', '.join(words)}" if words else ""


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        made = field.default_factory() if field.default_factory is not None else None  # type: ignore[call-arg]
        return "" if made is None else "empty"
    if isinstance(field.default, tuple | list | dict | frozenset):
        return f"`[{','.join(map(spell, field.default))}]`" if field.default else "empty"
    return f"`{spell(field.default)}`"


@cache
def documentation_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field of a model and of those that it extends, as one line each."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _texts(base)
    return found


def _texts(model: type[BaseModel]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            texts[field.target.id] = " ".join(below.value.value.split())
    return texts
