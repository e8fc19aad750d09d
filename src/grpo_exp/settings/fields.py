"""What the settings models say about their fields: which there are, their bounds, and a value to give as an example."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from grpo_exp.settings.run import RunSettings

#: Fields that say which member of a union a group is.
TAGS = ("kind", "mode")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Every bound of a number, as annotated-types writes it."""

    lower: tuple[Ge | Gt, ...]
    upper: tuple[Le | Lt, ...]

    def clip(self, value: int) -> int:
        """Return the whole number within the bounds that is nearest to `value`."""
        for bound in self.lower:
            value = max(value, bound.ge if isinstance(bound, Ge) else bound.gt + 1)  # type: ignore[operator,type-var]
        for bound in self.upper:
            value = min(value, bound.le if isinstance(bound, Le) else bound.lt - 1)  # type: ignore[operator,type-var]
        return value


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield the types an annotation is made of, through unions, containers and Annotated."""
    if typing.get_origin(annotation) in {None, typing.Literal}:
        yield annotation
        return
    if typing.get_origin(annotation) is typing.Annotated:
        yield from parts_of(typing.get_args(annotation)[0])
        return
    for argument in typing.get_args(annotation):
        yield from parts_of(argument)


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the settings models in an annotation: several for a union."""
    return [part for part in parts_of(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]


def bounds_of(field: FieldInfo) -> Bounds:
    """Return the bounds of a field, wherever in its annotation they stand."""
    found = [*field.metadata, *_metadata(field.annotation)]
    return Bounds(
        tuple(item for item in found if isinstance(item, Ge | Gt)),
        tuple(item for item in found if isinstance(item, Le | Lt)),
    )


def _metadata(annotation: Any) -> Iterator[Any]:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        for item in arguments[1:]:
            yield from item.metadata if isinstance(item, FieldInfo) else (item,)
        arguments = arguments[:1]
    for argument in arguments:
        yield from _metadata(argument)


def find_field(path: str, data: Mapping[str, Any]) -> FieldInfo | None:
    """Return the field at a dotted path, or None where there is none.

    Args:
        path: As a user would type it.
        data: The values, to tell which member of a union a group is.
    """
    return _find(path, data)[0]


def tags_at(path: str, data: Mapping[str, Any]) -> list[str]:
    """Return what the tag of the group at a dotted path may be, where the group is a union."""
    tags = [_tag(model) for model in models_of(_find(path, data)[1])]
    return [tag for tag in tags if tag is not None]


def _find(path: str, data: Mapping[str, Any]) -> tuple[FieldInfo | None, Any]:
    annotation: Any = RunSettings
    node: Any = data
    field: FieldInfo | None = None
    for key in path.split("."):
        models = _chosen(models_of(annotation), node)
        if typing.get_origin(annotation) is dict:  # its keys are the user's
            field, annotation = None, typing.get_args(annotation)[1]
        else:
            field = next((model.model_fields[key] for model in models if key in model.model_fields), None)
            annotation = None if field is None else field.annotation
        node = node.get(key) if isinstance(node, Mapping) else None
    return field, annotation


def _chosen(models: list[type[BaseModel]], node: Any) -> list[type[BaseModel]]:
    """Return the members of a union that the values' tag means, or all where it means none."""
    tags = {node.get(tag) for tag in TAGS} - {None} if isinstance(node, Mapping) else set()
    return [model for model in models if _tag(model) in tags] or models


def _tag(model: type[BaseModel]) -> str | None:
    """Return the text that tells a member of a union from the others."""
    for name in TAGS:
        choices = typing.get_args(model.model_fields[name].annotation) if name in model.model_fields else ()
        if len(choices) == 1:
            return str(choices[0])
    return None


def example_of(field: FieldInfo | None) -> str | None:
    """Return a number within the bounds of a field, as a user would type it, or None where it is no number."""
    if field is None:
        return None
    types = set(parts_of(field.annotation))
    if not types & {int, float} or bool in types:
        return None
    values = [*(field.examples or ()), field.default, bounds_of(field).clip(8)]
    return spell(next(value for value in values if value is not None and value is not PydanticUndefined))


def spell(value: Any) -> str:
    """Write a value as a user would type it: 1e-6 and not 1e-06, true and not True."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return re.sub(r"e([+-])0*(\d)", r"e\1\2", repr(value)).replace("e+", "e").removesuffix(".0")
    return str(value)


def groups_with(path: str) -> list[str]:
    """Return `GROUP=OPTION` for each member of the group that has the setting, where other members lack it.

    A group of which several options can be chosen (`tracker`) has a part for each, which is None where it is not.
    """
    group, _, key = path.partition(".")
    if group not in RunSettings.model_fields:
        return []
    members = models_of(RunSettings.model_fields[group].annotation)
    part = key.partition(".")[0]
    if len(members) == 1 and part in members[0].model_fields:
        field = members[0].model_fields[part]
        return [f"{group}={part}"] if field.default is None and models_of(field.annotation) else []
    if "." in key or key in TAGS:
        return []
    return [f"{group}={_tag(member)}" for member in members if len(members) > 1 and key in member.model_fields]


def paths_ending_in(key: str) -> list[str]:
    """Return the paths of all settings of this name, those nearest to the top first."""
    return [path for path in _all_paths() if path.rpartition(".")[2] == key and key not in TAGS]


@cache
def _all_paths() -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(_paths(RunSettings, "")), key=lambda path: path.count(".")))


def _paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if typing.get_origin(field.annotation) is not dict:  # its keys are the user's
            for member in models_of(field.annotation):
                yield from _paths(member, f"{prefix}{name}.")
