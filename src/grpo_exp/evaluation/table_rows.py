"""Rows of a saved table that somebody asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import ConfigError

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for; None is nothing in particular."""

    worst: int | None = None
    """How many of least value."""
    best: int | None = None
    """How many of most value."""
    component: str | None = None
    """What decides and is looked at; None is the reward, and for reasons all components."""
    reason: str | None = None
    """Only rows that got it."""
    group: int | None = None
    """Only rows of this prompt."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing says how many rows are wanted."""
        return self.worst is None and self.best is None and self.group is None


def choose_rows(rows: Sequence[Row], choice: Choice, *, default_count: int | None) -> list[Row]:
    """Return the rows that were asked for: the worst first, then the best, else in the order of the table.

    Args:
        rows: At least one, as `read_rows` returns those of a table.
        choice: What was asked for.
        default_count: How many at most where nothing says it; None is all.

    Raises:
        ConfigError: No row has such a component, reason or group; the message lists what there is.
    """
    _check_component(rows, choice.component)
    found = list(rows)
    if choice.group is not None:
        groups = sorted({row["group"] for row in rows})
        found = [row for row in found if row["group"] == choice.group]
        _check(found, f"--group={choice.group}: no completion is of this group", groups)
    if choice.reason is not None:
        reasons = sorted({reason for row in found for reason in _reasons(row, choice.component)})
        found = [row for row in found if choice.reason in _reasons(row, choice.component)]
        _check(found, f"--reason={choice.reason}: no completion got this reason", reasons)
    if choice.worst is None and choice.best is None:
        return found[:default_count] if choice.is_whole else found
    # What has no value is neither the worst nor the best: it comes behind them.
    judged = [row for row in found if _value(row, choice.component) is not None]
    ordered = sorted(judged, key=lambda row: _value(row, choice.component) or 0.0)
    return ordered[: choice.worst or 0] + ordered[::-1][: choice.best or 0]


def reason_counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Count the reasons of each component, the most frequent first."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, score in row["components"].items():
            of_component = counts.setdefault(name, {})
            of_component[score["reason"]] = of_component.get(score["reason"], 0) + 1
    return {name: dict(sorted(found.items(), key=lambda pair: -pair[1])) for name, found in counts.items()}


def _value(row: Row, component: str | None) -> float | None:
    return row["reward"] if component is None else row["components"][component]["value"]


def _reasons(row: Row, component: str | None) -> list[str]:
    names = row["components"] if component is None else [component]
    return [row["components"][name]["reason"] for name in names]


def _check_component(rows: Sequence[Row], component: str | None) -> None:
    names = list(rows[0]["components"])
    if component is not None and component not in names:
        raise ConfigError(f"--component={component}: the reward has none of this name; it has {', '.join(names)}")


def _check(found: Sequence[Row], text: str, there_are: Sequence[Any]) -> None:
    if not found:
        raise ConfigError(f"{text}; there are {', '.join(map(str, there_are))}")
