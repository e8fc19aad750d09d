"""From words with several values to points: Hydra's own grammar (choices, ranges, globs), crossed or in pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from grpo_exp.errors import ConfigError

#: A larger sweep is a slip of the finger: at a minute a run it takes ten weeks of one GPU.
MAX_POINTS = 100_000
#: Settings that say where a sweep is and how it is found: the same ones for all its points.
_NO_AXES = {
    "name": "the sweep's name is that of its folder",
    "output_dir": "all runs of a sweep lie in one folder",
    "resume": "the runs of a sweep are found again",
    "sweeps": "the axes of a file are read once, for all points",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting and the values it takes."""

    key: str
    """As a user types it, without a plus."""
    words: tuple[str, ...]
    """One `key=value` word per value."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What was asked for: words that are the same for all points, and axes."""

    fixed: tuple[str, ...]
    axes: tuple[Axis, ...]
    order: tuple[str, ...]
    """Keys of fixed words and axes in the order in which Hydra would hand them to a job."""
    paired: tuple[tuple[str, ...], ...] = ()

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(group[0].words) for group in self.groups())

    def groups(self) -> list[list[Axis]]:
        """Return the axes in groups that move together; most groups hold one axis."""
        by_key = {axis.key: axis for axis in self.axes}
        group_of = {key: group for group in self.paired for key in group}
        found: list[list[Axis]] = []
        seen: set[str] = set()
        for axis in self.axes:
            if axis.key not in seen:
                keys = group_of.get(axis.key, (axis.key,))
                found.append([by_key[key] for key in keys])
                seen |= set(keys)
        return found

    def points(self) -> list[tuple[str, ...]]:
        """Return all words of each point, the last axis changing fastest."""
        fixed = {_key(word): word for word in self.fixed}
        choices = [list(zip(*(axis.words for axis in group), strict=True)) for group in self.groups()]
        points = []
        for combination in itertools.product(*choices):
            chosen = {_key(word): word for words in combination for word in words}
            points.append(tuple({**fixed, **chosen}[key] for key in self.order))
        return points


def build_grid(
    params: Mapping[str, Any],
    words: Sequence[str],
    *,
    loader: ConfigLoader | None = None,
    paired: Sequence[Sequence[str]] = (),
) -> Grid:
    """Read the axes of a sweep file and the words that were typed, which win.

    Args:
        params: `hydra.sweeper.params`.
        words: Typed words, without those about Hydra itself.
        loader: Knows the options of groups, for `glob(*)`.
        paired: Groups of axes that move together.

    Raises:
        ConfigError: An axis cannot be one, or the pairs do not fit.
    """
    every = [*(f"{key}={value}" for key, value in params.items()), *words]
    try:
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(every)
    except HydraException as error:
        raise ConfigError(f"hydra.sweeper.params: {str(error).splitlines()[0]}; write SETTING: VALUE,VALUE") from error
    last = {override.get_key_element(): override for override in parsed}
    faults = [fault for override in last.values() for fault in _axis_faults(override)]
    if faults:
        raise ConfigError(faults)
    axes = tuple(
        Axis(override.key_or_group, tuple(f"{key}={value}" for value in override.sweep_string_iterator()))
        for key, override in last.items()
        if override.is_sweep_override()
    )
    # A deletion is a word without a value; everything else is written as Hydra writes it for a job.
    fixed = tuple(
        key if override.is_delete() and override.value() is None else f"{key}={override.get_value_element_as_str()}"
        for key, override in last.items()
        if not override.is_sweep_override()
    )
    grid = Grid(fixed, axes, tuple(last), tuple(tuple(group) for group in paired))
    _check(grid)
    return grid


def _axis_faults(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return []
    if not override.is_discrete_sweep():
        return [
            f"{override.input_line}: an interval has no list of values; write them out, or use range(START,STOP,STEP)"
        ]
    if override.key_or_group in _NO_AXES:
        why = _NO_AXES[override.key_or_group]
        return [f"{override.input_line}: cannot be swept, since {why}; give one value, or start two sweeps"]
    if not list(override.sweep_string_iterator()):
        return [f"{override.input_line}: holds no value; give at least one"]
    return []


def _check(grid: Grid) -> None:
    lengths = {axis.key: len(axis.words) for axis in grid.axes}
    faults = []
    for group in grid.paired:
        unknown = [key for key in group if key not in lengths]
        if unknown:
            known = ", ".join(lengths) or "none"
            faults.append(f"hydra.sweeper.paired: {', '.join(unknown)} is no axis; the axes are {known}")
        elif len({lengths[key] for key in group}) > 1:
            told = ", ".join(f"{key} has {lengths[key]}" for key in group)
            faults.append(f"hydra.sweeper.paired: {told} values, and axes that move together need as many; add or drop")
    if faults:
        raise ConfigError(faults)
    if grid.size > MAX_POINTS:
        raise ConfigError(
            f"{grid.size} points: a sweep has at most {MAX_POINTS}; leave out values of {', '.join(lengths)}"
        )


def _key(word: str) -> str:
    return parse(word).get_key_element()


@cache
def parse(word: str) -> Override:
    """Parse one word; the points of a sweep share theirs."""
    return OverridesParser.create().parse_override(word)
