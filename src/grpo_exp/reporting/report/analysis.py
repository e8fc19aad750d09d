"""What the seeds of a sweep support: points, effects of axes, comparisons of points.

One promise for all that is named: in a sweep in which nothing makes a difference, something is named in at most 5 of
100 cases. Effects of axes and comparisons of points are two families of tests; each gets half of the 5 % and is
corrected by Holm for the number of its tests. A sweep with one axis has one family: its points are the values of the
axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_exp.reporting.report.sweep_data import Axis, SweepData, SweepPoint
from grpo_exp.statistics.blocks import BlockDesign, Contrast, Pair
from grpo_exp.statistics.corrections import holm
from grpo_exp.statistics.intervals import Interval
from grpo_exp.statistics.seeds import seed_interval

#: Chance that a sweep without any effect is said to have one.
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class PointSummary:
    """A point over its seeds."""

    point: SweepPoint
    values: tuple[float, ...]
    """Of the runs that have one, in the order of the seeds."""
    mean: float | None
    interval: Interval | None
    """95 %, over seeds; None with fewer than two values and where they do not differ."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The marginal effect of an axis between two of its values: the mean over matched points of (second - first)."""

    axis: Axis
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    contrast: Contrast
    adjusted: float
    """p-value with correction, to be held against ALPHA."""

    @property
    def is_supported(self) -> bool:
        """Whether the seeds support that there is a difference."""
        return self.adjusted <= ALPHA


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two points; the second minus the first."""

    first: SweepPoint
    second: SweepPoint
    contrast: Contrast
    adjusted: float
    """p-value with correction, to be held against ALPHA."""

    @property
    def is_supported(self) -> bool:
        """Whether the seeds support that there is a difference."""
        return self.adjusted <= ALPHA


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that can be said about a metric over a sweep."""

    metric: str
    summaries: tuple[PointSummary, ...]
    """The best first; points without a value last."""
    effects: tuple[Effect, ...]
    comparisons: tuple[Comparison, ...]
    can_rank: bool
    """Whether the seeds say anything about differences at all."""

    @property
    def best(self) -> PointSummary | None:
        """The point with the highest mean, whether or not the seeds support that it is the best."""
        return self.summaries[0] if self.summaries and self.summaries[0].mean is not None else None


def analyse(data: SweepData, metric: str) -> Analysis:
    """Compare points and values of axes by a metric of which more is better."""
    table = data.table(metric)
    design = BlockDesign(table)
    effects = list(_effects(data, design))
    pairs = design.all_pairs() if len(data.axes) != 1 else {}
    families = (len(effects) > 0) + (len(pairs) > 0)
    corrected = _corrected([contrast for *_, contrast in effects], families)
    found = tuple(Effect(*effect, adjusted) for effect, adjusted in zip(effects, corrected, strict=True))
    comparisons = [
        Comparison(data.points[first], data.points[second], contrast, adjusted)
        for ((first, second), contrast), adjusted in zip(
            pairs.items(), _corrected(list(pairs.values()), families), strict=True
        )
    ]
    if len(data.axes) == 1:
        comparisons = _points_of(found, data.points)
    return Analysis(
        metric,
        tuple(sorted((_summary(point, table[point.index]) for point in data.points), key=_rank)),
        found,
        tuple(comparisons),
        bool(found or comparisons),
    )


def _corrected(contrasts: Sequence[Contrast], families: int) -> list[float]:
    return [min(1.0, p * families) for p in holm([contrast.p_value for contrast in contrasts])]


def _summary(point: SweepPoint, row: np.ndarray) -> PointSummary:
    values = tuple(float(value) for value in row if not np.isnan(value))
    return PointSummary(point, values, float(np.mean(values)) if values else None, seed_interval(values))


def _rank(summary: PointSummary) -> tuple[bool, float, int]:
    return (summary.mean is None, -(summary.mean or 0.0), summary.point.index)


def _effects(data: SweepData, design: BlockDesign) -> Iterable[tuple[Axis, tuple[Any, ...], tuple[Any, ...], Contrast]]:
    for axis in data.axes:
        for first, second in itertools.combinations(axis.levels, 2):
            contrast = design.contrast(matched_pairs(data, axis, first, second))
            if contrast is not None:
                yield axis, first, second, contrast


def matched_pairs(data: SweepData, axis: Axis, first: tuple[Any, ...], second: tuple[Any, ...]) -> list[Pair]:
    """Return pairs of points that differ on one axis only: at its first and at its second value."""
    by_rest: dict[str, dict[tuple[Any, ...], int]] = {}
    for point in data.points:
        by_rest.setdefault(_rest(point.values, axis), {})[axis.level_of(point.values)] = point.index
    return [(found[first], found[second]) for found in by_rest.values() if first in found and second in found]


def _rest(values: Mapping[str, Any], axis: Axis) -> str:
    return repr([(key, value) for key, value in values.items() if key not in axis.keys])


def _points_of(effects: Sequence[Effect], points: Sequence[SweepPoint]) -> list[Comparison]:
    """Return the effects of the only axis as comparisons of its points."""
    by_level = {effect.axis.level_of(point.values): point for effect in effects[:1] for point in points}
    return [Comparison(by_level[e.first], by_level[e.second], e.contrast, e.adjusted) for e in effects]
