"""What a report needs of a sweep: its points with their runs, and the axes that tell points apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_exp.reporting.report.run_data import RunData, read_run
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.states import PointStatus
from grpo_exp.sweeps.summary import axis_values

_MOST_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting that is swept, or several that move together."""

    keys: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    """Values of the keys, ascending where they are numbers."""

    @property
    def title(self) -> str:
        """The keys as a user types them."""
        return " & ".join(self.keys)

    def level_of(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return where a point lies on this axis."""
        return tuple(values[key] for key in self.keys)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point with its runs, one for each seed."""

    index: int
    point_id: str
    values: Mapping[str, Any]
    """What it has on the axes."""
    runs: tuple[RunData, ...]
    seeds: tuple[int, ...]

    @property
    def label(self) -> str:
        """Its values, short enough for a legend."""
        names = short_names(list(self.values))
        return ", ".join(f"{names[key]}={shown(value)}" for key, value in self.values.items()) or "all runs"

    @property
    def states(self) -> Counter[str]:
        """How many of its runs are in each state."""
        return Counter(run.state for run in self.runs)


@dataclass(frozen=True, slots=True)
class SweepData:
    """A sweep as it stands."""

    sweep: SweepDirectory
    statuses: Sequence[PointStatus]
    points: tuple[SweepPoint, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]

    def table(self, metric: str) -> np.ndarray:
        """Return the values of the runs, shape (num_points, num_seeds); NaN where a run has none."""
        values = np.full((len(self.points), len(self.seeds)), np.nan)
        place = {seed: number for number, seed in enumerate(self.seeds)}
        for point in self.points:
            for seed, run in zip(point.seeds, point.runs, strict=True):
                value = run.value(metric)
                values[point.index, place[seed]] = np.nan if value is None else value
        return values


def read_sweep(sweep: SweepDirectory, statuses: Sequence[PointStatus]) -> SweepData:
    """Read all runs of a sweep, those that failed or never began included."""
    settings = sweep.read_all_settings()
    keys = [key for key in dict.fromkeys(key for s in statuses for key in s.entry.values) if key != "seed"]
    by_point: dict[str, list[PointStatus]] = {}
    for status in statuses:
        by_point.setdefault(status.entry.point_id, []).append(status)
    points = []
    for index, (point_id, members) in enumerate(by_point.items()):
        runs = tuple(
            read_run(sweep.run(s.entry), settings[s.entry.index], state=s.state, reason=s.reason) for s in members
        )
        found = axis_values(members[0], keys, settings[members[0].entry.index])
        values = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in found.items()}
        points.append(SweepPoint(index, point_id, values, runs, tuple(s.entry.seed for s in members)))
    seeds = tuple(sorted({s.entry.seed for s in statuses}))
    return SweepData(sweep, statuses, tuple(points), find_axes(points), seeds)


def find_axes(points: Sequence[SweepPoint]) -> tuple[Axis, ...]:
    """Return what tells points apart: settings that take several values, joined where they always move together."""
    keys = [key for key in points[0].values if len({repr(p.values[key]) for p in points}) > 1] if points else []
    groups: list[list[str]] = []
    for key in keys:
        for group in groups:
            pairs = {(repr(p.values[group[0]]), repr(p.values[key])) for p in points}
            if len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}):
                group.append(key)
                break
        else:
            groups.append([key])
    return tuple(Axis(tuple(group), _levels(points, group)) for group in groups)


def _levels(points: Sequence[SweepPoint], keys: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    found = dict.fromkeys(tuple(point.values[key] for key in keys) for point in points)
    numbers = all(isinstance(value, int | float) for level in found for value in level)
    return tuple(sorted(found)) if numbers else tuple(found)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the end of each key, long enough to be told from the others: weight, or format.weight."""
    found = {}
    for key in keys:
        parts = key.split(".")
        others = [f".{other}" for other in keys if other != key]
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        found[key] = next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), key)
    return found


def shown(value: Any) -> str:
    """Write the value of a setting as short as it stays itself, and no longer than a legend has room for.

    What is too long loses its middle: paths and prompts that are swept differ at their ends as a rule.
    """
    text = str(value)
    if isinstance(value, float) and float(f"{value:g}") == value:
        text = f"{value:g}"
    left_out = len(text) - _MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[: _MOST_CHARACTERS // 3]}…{text[len(text) - 2 * _MOST_CHARACTERS // 3 :]}"
