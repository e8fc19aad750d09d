"""A curve's memory: first and latest points, best stretches, and what it forgets."""

from __future__ import annotations

import pytest

from grpo_exp.health.curves import Curve, Point
from grpo_exp.health.history import COMPLETIONS_PER_SECOND, TOKENS_PER_SECOND, History


def curve_of(*values: float, keep: int = 3, best_of: tuple[int, ...] = ()) -> Curve:
    curve = Curve(keep, best_of)
    for step, value in enumerate(values, start=1):
        curve.add(Point(step, value))
    return curve


def values(points: object) -> list[float]:
    assert isinstance(points, list | tuple)
    return [point.value for point in points]


def test_windows_are_full_or_empty() -> None:
    curve = curve_of(1, 2, 3, 4, 5)
    assert values(curve.start(2)) == [1, 2]
    assert values(curve.last(2)) == [4, 5]
    assert values(curve.last(2, before=1)) == [3, 4]
    assert values(curve_of(1).last(2)) == []
    assert values(curve_of(1).start(2)) == []


def test_memory_is_bounded() -> None:
    """Keep 3: the first three and the latest six."""
    curve = curve_of(*range(1000))
    assert len(curve) == 1000
    assert values(curve.start(3)) == [0, 1, 2]
    assert values(curve.last(6)) == [994, 995, 996, 997, 998, 999]
    assert values(curve.last(7)) == []
    assert curve.since(lambda value: value > 0) == 995  # step 995 has value 994: as far back as it remembers


def test_best_mean_is_remembered_and_the_peak() -> None:
    """Means of two: 3 3 1 1; they end at steps 2 to 5."""
    curve = curve_of(2, 4, 2, 0, 2, best_of=(2,))
    assert curve.best(2) == Point(2, 3)
    assert curve.peak == Point(2, 4)
    with pytest.raises(KeyError):
        curve.best(3)


def test_best_mean_at_the_start_is_that_of_three_points() -> None:
    assert curve_of(9, 9, best_of=(5,)).best(5) is None
    assert curve_of(9, 9, 3, best_of=(5,)).best(5) == Point(3, 7)


def test_unbroken_stretch_begins_behind_the_last_value_that_breaks_it() -> None:
    assert curve_of(5, 1, 5, 6, keep=9).since(lambda value: value >= 5) == 3
    assert curve_of(5, 1, keep=9).since(lambda value: value >= 5) == 2  # broken at the end: now


def test_going_back_forgets_later_points_best_and_peak() -> None:
    curve = curve_of(1, 1, 1, 8, 8, keep=9, best_of=(2,))
    curve.forget_from(4)
    assert (len(curve), values(curve.last(3))) == (3, [1, 1, 1])
    assert (curve.best(2), curve.peak) == (Point(2, 1), Point(1, 1))


def test_going_back_behind_everything_leaves_an_empty_curve() -> None:
    curve = curve_of(1, 2)
    curve.forget_from(1)
    assert (len(curve), curve.latest_step, curve.peak) == (0, 0, None)


def test_speeds_are_those_between_two_generations() -> None:
    """Batches of 8 at steps 1 and 3: 100 tokens in the 1 s of step 2 and the 3 s of step 3."""
    history = History(keep=5, completions_per_batch=8)
    history.record(1, {"train/num_tokens": 50.0, "time/step": 9.0})
    history.record(2, {"time/step": 1.0})
    history.record(3, {"train/num_tokens": 150.0, "time/step": 3.0})
    assert list(history.curve(TOKENS_PER_SECOND).last(1)) == [Point(3, 25.0)]
    assert list(history.curve(COMPLETIONS_PER_SECOND).last(1)) == [Point(3, 2.0)]
    assert len(history.curve(TOKENS_PER_SECOND)) == 1
