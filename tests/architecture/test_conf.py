"""Every file in conf/ and sweeps/ is an option that a user can type, and composes; every setting is documented."""

from __future__ import annotations

import ast
import inspect
import itertools
import types
from pathlib import Path

import pytest
from pydantic import BaseModel

from architecture.checkout import CHECKOUT
from architecture.settings_walk import MODELS, parts_of
from grpo_exp.settings import load
from grpo_exp.settings.base import Settings
from grpo_exp.settings.run import RunSettings

CONF = CHECKOUT / "conf"
PRIMARY = sorted(path.name for path in CONF.glob("*.yaml"))
OPTIONS = sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in CONF.glob("*/**/*.yaml"))
SWEEPS = sorted(path.stem for path in (CHECKOUT / "sweeps").glob("*.yaml"))
#: What an option cannot do without, and only a user knows.
NEEDED = {
    "dataset/jsonl": ["dataset.path=rows.jsonl"],
    "dataset/hub": ["dataset.path=rows.jsonl"],
    "model/local": ["model.path=folder"],
    "model/hub": ["model.path=organisation/name"],
}


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


def test_walk_reaches_nested_models() -> None:
    """Guards the next test against looking at nothing: a member of a union, inside a dict, inside a group."""
    names = {model.__name__ for model in MODELS}
    assert {"RunSettings", "TinyArchitecture", "ServerVllm", "ThinkFormatComponent", "DynamicSampling"} <= names
    assert list(parts_of(int | None)) == [int, types.NoneType]


def documented_fields(source: str) -> set[str]:
    """Return the annotated names of a class that are followed by a text."""
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    found = set()
    for item, following in itertools.pairwise(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        match following:
            case ast.Expr(value=ast.Constant(value=str() as text)) if text.strip():
                found.add(item.target.id)
    return found


def test_text_is_seen_only_below_its_field() -> None:
    source = (
        'class A:\n    """A."""\n    x: int = 1\n    """X."""\n    y: int\n    z: int = 2\n    """"""\n    w: int\n'
    )
    assert documented_fields(source) == {"x"}


@pytest.mark.parametrize("model", MODELS)
def test_every_setting_has_a_docstring(model: type[BaseModel]) -> None:
    tags = {"kind", "mode"}  # say only which member of a union it is
    classes = [part for part in model.__mro__ if issubclass(part, Settings) and part is not Settings]
    documented = {name for part in classes for name in documented_fields(inspect.getsource(part))}
    bare = set(model.model_fields) - documented - tags
    assert not bare, f"{model.__name__}: no docstring under {', '.join(sorted(bare))}"
