"""Every file in conf/ and sweeps/ is an option that a user can type, and composes; every setting is documented."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from architecture.checkout import CHECKOUT
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings

CONF = CHECKOUT / "conf"
PRIMARY = sorted(path.name for path in CONF.glob("*.yaml"))
OPTIONS = sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in CONF.glob("*/**/*.yaml"))
SWEEPS = sorted(path.stem for path in (CHECKOUT / "sweeps").glob("*.yaml"))
#: What an option cannot do without, and only a user knows.
NEEDED = {"dataset/jsonl": ["dataset.path=rows.jsonl"], "model/local": ["model.path=folder"]}


def test_only_train_yaml_lies_at_the_top() -> None:
    """A file at the top is no group option: `X=Y` cannot reach it."""
    assert set(PRIMARY) <= {"train.yaml", "evaluate.yaml", "sft.yaml"}
    assert "train.yaml" in PRIMARY


@pytest.mark.parametrize("option", OPTIONS)
def test_option_composes_to_valid_settings(option: str) -> None:
    group, _, name = option.rpartition("/")
    settings = load.to_settings(load.compose([f"{group}={name}", *NEEDED.get(option, [])]))
    assert isinstance(settings, RunSettings)


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_composes_over_valid_settings(name: str) -> None:
    config = load.compose([f"+sweeps={name}"])
    settings = load.to_settings(config)
    assert settings.name == name  # the folder of the sweep; two sweeps must not share one


@pytest.mark.parametrize("path", [*CONF.rglob("*.yaml"), *(CHECKOUT / "sweeps").glob("*.yaml")], ids=lambda p: p.stem)
def test_preset_says_what_it_is(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    assert lines[0].startswith("# "), f"{path}: the first line is a comment that says what the option is for"


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


def test_walk_reaches_nested_models() -> None:
    """Guards the next test against looking at nothing: a member of a union, inside a dict, inside a group."""
    names = {model.__name__ for model in settings_models(RunSettings)}
    assert {"RunSettings", "TinyArchitecture", "ServerVllm", "ThinkFormatComponent", "DynamicSampling"} <= names
    assert list(parts_of(int | None)) == [int, types.NoneType]


@pytest.mark.parametrize("model", sorted(set(settings_models(RunSettings)), key=lambda m: m.__name__))
def test_every_setting_has_a_docstring(model: type[BaseModel]) -> None:
    tags = {"kind", "mode"}  # say only which member of a union it is
    bare = [name for name, field in model.model_fields.items() if not field.description and name not in tags]
    assert not bare, f"{model.__name__}: no docstring under {', '.join(bare)}"
