"""All settings models, found by walking the fields of `RunSettings`."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.run import RunSettings


def settings_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a settings model and all that stand in its fields."""
    yield model
    for field in model.model_fields.values():
        for part in parts_of(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from settings_models(part)


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield an annotation's members, through unions, containers and Annotated."""
    if typing.get_origin(annotation) in {None, typing.Literal}:
        yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from parts_of(argument)


MODELS = sorted({*settings_models(RunSettings), *settings_models(EvaluationSettings)}, key=lambda model: model.__name__)
