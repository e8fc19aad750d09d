"""Which groups are kept and how many prompts come next: arithmetic that every process repeats for itself."""

from __future__ import annotations

import math

import pytest

from grpo_exp.backends.trl.group_selection import GroupSelection, varies

DEAD, ALIVE = [0.0, 0.0], [0.0, 1.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.0, 0.0], False),
        ([1.0, 1.0, 1.0], False),
        ([0.0, 1.0, 0.0], True),
        ([-1.0, -0.75], True),
        ([0.1 + 0.2, 0.3], False),  # 0.30000000000000004: rounding is no difference
        ([0.0, 0.001], True),
        # What cannot be judged says nothing, and of one value nothing differs.
        ([math.nan, 0.0, 1.0], True),
        ([math.nan, 0.0, 0.0], False),
        ([math.nan, 1.0], False),
        ([math.nan, math.nan], False),
    ],
)
def test_group_varies_where_judged_values_differ(values: list[float], expected: bool) -> None:
    assert varies(values) is expected


def test_groups_that_vary_are_kept_in_the_order_of_drawing() -> None:
    """Groups 0 to 3 come first, then 4 and 5; 1, 3 and 4 vary, and two are wanted."""
    selection = GroupSelection(wanted=3)
    selection.add_round([DEAD, ALIVE, DEAD, ALIVE])
    assert (selection.num_missing, selection.acceptance_rate) == (1, 0.5)
    selection.add_round([ALIVE, DEAD])
    assert (selection.num_missing, selection.num_rounds, selection.num_drawn) == (0, 2, 6)
    assert selection.acceptance_rate == 0.5  # 3 of 6
    assert selection.choose() == [1, 3, 4]


def test_groups_too_many_are_trimmed_from_the_end() -> None:
    selection = GroupSelection(wanted=2)
    selection.add_round([ALIVE, DEAD])
    selection.add_round([ALIVE, ALIVE])
    assert selection.choose() == [0, 2]
    assert (selection.num_varying, selection.num_missing) == (3, 0)


def test_batch_that_does_not_get_full_is_filled_with_the_first_dead_groups() -> None:
    selection = GroupSelection(wanted=4)
    selection.add_round([DEAD, DEAD, ALIVE, DEAD])
    selection.add_round([DEAD])
    assert selection.choose() == [2, 0, 1, 3]
    assert selection.num_missing == 3


@pytest.mark.parametrize(
    ("num_varying", "num_drawn", "expected"),
    [
        # 32 are wanted. 16 of 32 vary: 16 missing / 0.5 = 32, and one more is above a full batch.
        (16, 32, 32),
        # 24 of 32: 8 missing / 0.75 = 10.7, so 11, and one more.
        (24, 32, 12),
        # 31 of 32: 1 / 0.97 = 1.03, so 2, and one more.
        (31, 32, 3),
        # 1 of 32: 31 / 0.03 = 992 is more than is known to fit.
        (1, 32, 32),
        # None varies: nothing is known about the rate.
        (0, 32, 32),
        # 20 of 80 over several rounds: 12 / 0.25 = 48 is cut, too.
        (20, 80, 32),
        # 30 of 40: 2 / 0.75 = 2.7, so 3, and one more.
        (30, 40, 4),
    ],
)
def test_next_round_is_sized_by_the_rate_so_far(num_varying: int, num_drawn: int, expected: int) -> None:
    selection = GroupSelection(wanted=32)
    selection.add_round([ALIVE] * num_varying + [DEAD] * (num_drawn - num_varying))
    assert selection.count_next(num_processes=1, num_generations=8) == expected


@pytest.mark.parametrize(
    ("num_processes", "num_generations", "expected"),
    [
        (1, 6, 3),
        (2, 6, 3),  # 18 rows, 9 on each
        (4, 6, 4),  # 18 do not divide by 4: 4 prompts are 24 rows, 6 on each
        (16, 8, 4),  # 24 do not divide by 16: 4 prompts are 32, 2 on each
        (3, 8, 3),
        (5, 8, 5),
    ],
)
def test_rows_of_a_round_are_shared_out_equally(num_processes: int, num_generations: int, expected: int) -> None:
    """31 of 32 groups vary, so 3 prompts would do."""
    selection = GroupSelection(wanted=480)  # times G divides by all of these numbers of processes
    selection.add_round([ALIVE] * 479 + [DEAD])
    count = selection.count_next(num_processes, num_generations)
    assert count == expected
    assert count * num_generations % num_processes == 0
