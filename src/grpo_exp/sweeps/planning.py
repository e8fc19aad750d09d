"""From a grid to checked points: compose once for each choice of groups, put the values into copies, check all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import load_run_data, prepare
from grpo_exp.provenance import settings_hash
from grpo_exp.settings import load
from grpo_exp.settings.absolute_paths import absolute_paths
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.axes import Grid, parse
from grpo_exp.sweeps.held import held_words
from grpo_exp.sweeps.placement import place
from grpo_exp.sweeps.rules import SweepRules, reason_to_skip

if TYPE_CHECKING:
    from omegaconf import DictConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One run that a sweep asks for."""

    words: tuple[str, ...]
    """What a user would type for it, without where it lies."""
    values: Mapping[str, Any]
    """What it has on the axes."""
    settings: RunSettings
    """Checked, with the sweep's folder as the folder of its run."""
    point_id: str
    """8 hex digits over the settings without the seed and without where things lie."""

    @property
    def run_id(self) -> str:
        """Name of its run directory."""
        return f"{self.point_id}-s{self.settings.seed}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A point that is left out."""

    values: Mapping[str, Any]
    reason: str


@dataclass(slots=True)
class Plan:
    """All points that were asked for, checked."""

    points: list[Point] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    faults: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Message -> what the points with this fault have on the axes."""


def build_plan(
    grid: Grid,
    rules: SweepRules,
    *,
    folder: Path,
    hydra_words: Sequence[str] = (),
    runs_here: bool = True,
    on_point: Callable[[int], None] = lambda count: None,
) -> Plan:
    """Check every point of a grid; nothing is written.

    Args:
        grid: Words and axes.
        rules: Constraints.
        folder: The sweep's folder, absolute.
        hydra_words: Typed words about Hydra itself, such as its search path.
        runs_here: The runs will be on this machine.
        on_point: Called with the number of points that were looked at.

    Returns:
        A plan. Its points are to be run only where it holds no faults.
    """
    planner = _Planner(grid, rules, folder, hydra_words, runs_here)
    plan, seen = Plan(), dict[str, Mapping[str, Any]]()
    for count, words in enumerate(grid.points(), 1):
        values = _values_of(grid, words)
        try:
            point = planner.check(words, values)
        except ConfigError as error:
            _add_faults(plan, rules, values, error)
        else:
            if isinstance(point, str):
                plan.skipped.append(Skipped(values, point))
            elif point.run_id in seen:
                same = describe_values(seen[point.run_id])
                plan.skipped.append(Skipped(values, f"computes the same as the point {same}"))
            else:
                seen[point.run_id] = values
                plan.points.append(point)
        on_point(count)
    return plan


def describe_values(values: Mapping[str, Any]) -> str:
    """Write what a point has on the axes."""
    return " ".join(f"{key}={'null' if value is None else value}" for key, value in values.items()) or "(no axis)"


def _values_of(grid: Grid, words: Sequence[str]) -> dict[str, Any]:
    keys = {axis.key for axis in grid.axes}
    parsed = [parse(word) for word in words]
    return {override.key_or_group: override.value() for override in parsed if override.key_or_group in keys}


def _add_faults(plan: Plan, rules: SweepRules, values: Mapping[str, Any], error: ConfigError) -> None:
    if rules.on_invalid == "skip":
        plan.skipped.append(Skipped(values, "; ".join(error.faults)))
        return
    for fault in error.faults:
        plan.faults.setdefault(fault, []).append(values)


class _Planner:
    """What the points of one plan share: compositions, and data that were read."""

    def __init__(
        self, grid: Grid, rules: SweepRules, folder: Path, hydra_words: Sequence[str], runs_here: bool
    ) -> None:
        self._grid = grid
        self._rules = rules
        self._folder = folder
        self._hydra_words = tuple(hydra_words)
        self._runs_here = runs_here
        self._groups = load.groups()
        self._composed: dict[tuple[str, ...], DictConfig | ConfigError] = {}
        self._held: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._data: dict[str, PromptData | ConfigError] = {}

    def check(self, words: tuple[str, ...], values: Mapping[str, Any]) -> Point | str:
        """Return the point of these words, or the reason to leave it out.

        Raises:
            ConfigError: It cannot be run.
        """
        choosing = tuple(word for word in words if self._chooses(word))
        base = self._compose(choosing)
        added = self._hold(choosing, base, words)
        config = load.vary(base, [parse(word) for word in (*words, *added) if word not in choosing])
        data = load.resolve(config)
        reason = reason_to_skip(self._rules, values, data)
        if reason is not None:
            return reason
        settings = absolute_paths(load.validate(data), Path.cwd())
        if settings.resume == "never":
            raise ConfigError(
                "resume=never: a sweep finds its runs again by their names; leave it out, and give a new sweep a name "
                "of its own with name=NAME"
            )
        settings = place(settings, self._folder)
        prepare(settings, load_data=self._load_data, runs_here=self._runs_here)
        return Point((*words, *added), values, settings, settings_hash(settings.model_dump(mode="json")))

    def _chooses(self, word: str) -> bool:
        override = parse(word)
        return override.key_or_group in self._groups and not isinstance(override.value(), dict | list)

    def _compose(self, choosing: tuple[str, ...]) -> DictConfig:
        if choosing not in self._composed:
            try:
                self._composed[choosing] = load.compose([*self._hydra_words, *choosing])
            except ConfigError as error:
                self._composed[choosing] = error
        return _found(self._composed[choosing])

    def _hold(self, choosing: tuple[str, ...], base: DictConfig, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that hold the size of a step, worked out without the axes that set values."""
        if self._rules.hold is None:
            return ()
        if choosing not in self._held:
            axes = [axis.key for axis in self._grid.axes]
            fixed = [parse(word) for word in words if word not in choosing and parse(word).key_or_group not in axes]
            self._held[choosing] = held_words(self._rules, load.resolve(load.vary(base, fixed)), axes)
        return self._held[choosing]

    def _load_data(self, settings: RunSettings, plan: BatchPlan) -> PromptData:
        """Read and look at data once for all points that see the same ones.

        Seeds count as the same: another one draws other prompts of the same kind, and each run looks at its own again.
        """
        groups = [each.model_dump(mode="json") for each in (settings.dataset, settings.reward, settings.model)]
        numbers = [settings.trainer.max_completion_length, settings.trainer.eval_samples, plan.prompts_per_generation]
        key = json.dumps([*groups, *numbers], sort_keys=True)
        if key not in self._data:
            try:
                self._data[key] = load_run_data(settings, plan)
            except ConfigError as error:
                self._data[key] = error
        return _found(self._data[key])


def _found(value: T | ConfigError) -> T:
    if isinstance(value, ConfigError):
        raise value
    return value
