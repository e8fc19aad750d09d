"""Composed settings, and what is said about changed ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings


@pytest.fixture(scope="session")
def _composed() -> dict[str, Any]:
    # Without what dapo adds to the reward: the values are those of the files, as a user changes them.
    settings = load.to_settings(load.compose(["algorithm=dapo", "algorithm.overlong.enabled=false", "tracker=none"]))
    return settings.model_dump(mode="json")


@pytest.fixture
def data(_composed: dict[str, Any]) -> dict[str, Any]:
    """Return the values of `algorithm=dapo algorithm.overlong.enabled=false tracker=none`, to be changed."""
    return copy.deepcopy(_composed)


@pytest.fixture
def changed(data: dict[str, Any]) -> Callable[..., RunSettings]:
    """Return `changed({"trainer.max_steps": "7"})`, which validates the defaults with these values put in."""

    def validate(changes: dict[str, Any]) -> RunSettings:
        values = copy.deepcopy(data)
        for path, value in changes.items():
            *groups, key = path.split(".")
            node = values
            for group in groups:
                node = node.setdefault(group, {})
            node[key] = value
        return load.validate(values)

    return validate


@pytest.fixture
def faults(changed: Callable[..., RunSettings]) -> Callable[..., tuple[str, ...]]:
    """Return `faults(changes)`: the messages that these values lead to."""

    def collect(changes: dict[str, Any]) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            changed(changes)
        return caught.value.faults

    return collect


def from_shell(*overrides: str) -> RunSettings:
    """Return the settings of words after the command, through Hydra's own parser."""
    return load.to_settings(load.compose(["tracker=none", *overrides]))


@pytest.fixture(scope="session")
def typed() -> Callable[..., RunSettings]:
    """Return `typed("seed=1", ...)`: the settings of words as Hydra reads them."""
    return from_shell
