"""One metric over the steps, with bounded memory: its first points, its latest points, and its best stretches."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import NamedTuple

#: A best mean is one of at least this many points: the very first ones may be lucky.
MIN_BEST = 3
#: Shares of counts are held in 32 bits: nine dead groups of ten are 0.8999999762.
_ROUNDING = 1e-6


class Point(NamedTuple):
    """A value and the optimizer step that measured it."""

    step: int
    value: float


class Curve:
    """The points of one metric.

    Args:
        keep: First points that are kept, and half of the latest ones that are.
        best_of: Numbers of points over whose running mean the best is remembered.

    Attributes:
        peak: The highest point; None where there is none.
    """

    def __init__(self, keep: int, best_of: Collection[int] = ()) -> None:
        self._first: list[Point] = []
        self._latest: deque[Point] = deque(maxlen=2 * keep)
        self._best: dict[int, Point] = {}
        self.peak: Point | None = None
        self._keep = keep
        self._best_of = tuple(best_of)
        self._count = 0

    def __len__(self) -> int:
        """Return how many points there were, those that are no longer kept included."""
        return self._count

    @property
    def latest_step(self) -> int:
        """The step of the latest point, 0 where there is none."""
        return self._latest[-1].step if self._latest else 0

    @property
    def kept(self) -> Sequence[Point]:
        """The latest points, oldest first, as far back as they are kept."""
        return tuple(self._latest)

    def add(self, point: Point) -> None:
        """Append a point of a later step."""
        if len(self._first) < self._keep:
            self._first.append(point)
        self._latest.append(point)
        self._count += 1
        if self.peak is None or point.value > self.peak.value:
            self.peak = point
        for window in self._best_of:
            points = self.last(min(window, len(self._latest)))
            value = mean(points)
            if len(points) >= min(window, MIN_BEST) and (window not in self._best or value > self._best[window].value):
                self._best[window] = Point(point.step, value)

    def forget_from(self, step: int) -> None:
        """Drop the points from a step on: the run goes on from an earlier one."""
        if self.latest_step < step:
            return
        points = [*self._first, *(point for point in self._latest if point.step > self._first[-1].step)]
        best = {window: point for window, point in self._best.items() if point.step < step}
        peak = self.peak if self.peak is not None and self.peak.step < step else None
        dropped = sum(point.step >= step for point in points)
        count = self._count - dropped
        self._first, self._best, self.peak = [], best, peak
        self._latest.clear()
        for point in points:
            if point.step < step:
                self.add(point)
        self._count = count

    def start(self, num_points: int) -> Sequence[Point]:
        """Return the first points, or nothing while there are fewer."""
        return self._first[:num_points] if len(self._first) >= num_points else ()

    def references(self, num_points: int) -> Sequence[Sequence[Point]]:
        """Return what the latest points are compared with: the first ones, and the oldest behind them that are kept.

        What has risen early and stands still since then shows only against the second. Nothing while there are fewer
        than twice as many points.
        """
        if self._count < 2 * num_points:
            return ()
        first, oldest = self.start(num_points), tuple(islice(self._latest, num_points))
        is_apart = len(self._latest) >= 2 * num_points and bool(first) and oldest[0].step > first[-1].step
        return (first, oldest) if is_apart else (first,)

    def last(self, num_points: int, *, before: int = 0) -> Sequence[Point]:
        """Return the latest points, oldest first, or nothing while there are fewer.

        Args:
            num_points: How many.
            before: Points at the end that are left out.
        """
        if len(self._latest) < num_points + before:
            return ()
        return tuple(islice(reversed(self._latest), before, before + num_points))[::-1]

    def best(self, num_points: int) -> Point | None:
        """Return the highest mean of so many successive points, with the last of their steps.

        At the start of the curve those of fewer points count, too, from MIN_BEST on; None before them.

        Raises:
            KeyError: The curve was not told to remember it.
        """
        if num_points not in self._best_of:
            raise KeyError(num_points)
        return self._best.get(num_points)

    def since(self, holds: Callable[[float], bool]) -> int:
        """Return the first step of the unbroken stretch at the end for whose values something holds.

        The latest step where it does not hold at the end, and 0 on an empty curve.
        """
        step = self.latest_step
        for point in reversed(self._latest):
            if not holds(point.value):
                break
            step = point.step
        return step


def mean(points: Sequence[Point]) -> float:
    """Return the mean value of some points."""
    return sum(point.value for point in points) / len(points)


def median(points: Sequence[Point]) -> float:
    """Return the median value of some points."""
    return statistics.median(point.value for point in points)


def reaches(share: float, bound: float) -> bool:
    """Say whether a share is at least a bound, rounding aside."""
    return share >= bound - _ROUNDING


def lowest(points: Sequence[Point]) -> float:
    """Return the lowest value of some points."""
    return min(point.value for point in points)
