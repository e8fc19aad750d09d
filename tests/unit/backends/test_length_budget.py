"""Rows in parts of equal cost: worked out by hand, and what holds for any lengths."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_exp.backends.trl.length_budget import Part, divide


def test_rows_are_cut_where_the_largest_part_is_smallest() -> None:
    """Prompts of 2; completions 10, 4, 3, 2, 1 in two parts.

    Rows 0 and 1 cost 2 x 12 = 24, the others 3 x 5 = 15. Row 0 alone would leave 4 x 6 = 24: no better; three rows with
    it cost 36. The whole batch at its width, three rows a part, costs 3 x 12 = 36.
    """
    parts = divide([2] * 5, [1, 10, 3, 4, 2], range(5), 2)
    assert parts == [Part((1, 3), 2, 10), Part((2, 4, 0), 2, 3)]
    assert [part.padded_tokens for part in parts] == [24, 15]


def test_rows_of_one_length_are_shared_out_equally() -> None:
    """Nothing to gain: 8 rows in 2 parts stay 4 and 4, in the order in which they came."""
    parts = divide([3] * 8, [5] * 8, range(8), 2)
    assert [part.rows for part in parts] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_only_the_given_rows_are_taken() -> None:
    parts = divide([1, 1, 1], [9, 2, 3], [1, 2], 2)
    assert parts == [Part((2,), 1, 3), Part((1,), 1, 2)]


def test_fewer_rows_than_parts_are_one_part_each() -> None:
    assert [part.rows for part in divide([1] * 2, [2, 5], range(2), 4)] == [(1,), (0,)]
    assert divide([1], [1], [], 4) == []


def test_no_part_stays_unused() -> None:
    """Completions 10, 1, 1 in three parts: the budget of 10 needs only two, and the second one is cut in its middle."""
    parts = divide([0] * 3, [10, 1, 1], range(3), 3)
    assert [part.rows for part in parts] == [(0,), (1,), (2,)]


def test_long_prompts_stay_together_where_that_is_cheaper() -> None:
    """Prompts 10, 1, 10, 1 and completions 3, 4, 1, 2.

    By completion: rows 1, 0 cost 2 x (10 + 4) = 28. By the sum: rows 0, 2 cost 2 x (10 + 3) = 26 and 1, 3 cost
    2 x (1 + 4) = 10.
    """
    parts = divide([10, 1, 10, 1], [3, 4, 1, 2], range(4), 2)
    assert parts == [Part((0, 2), 10, 3), Part((1, 3), 1, 4)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 50)), min_size=1, max_size=40),
    st.integers(1, 12),
)
def test_every_row_is_in_one_part_that_is_wide_enough_and_not_too_large(
    rows: list[tuple[int, int]], num_parts: int
) -> None:
    prompts, completions = [prompt for prompt, _ in rows], [completion for _, completion in rows]
    parts = divide(prompts, completions, range(len(rows)), num_parts)
    assert sorted(row for part in parts for row in part.rows) == list(range(len(rows)))
    assert len(parts) == min(num_parts, len(rows))
    for part in parts:
        assert part.prompt_width == max(prompts[row] for row in part.rows)
        assert part.completion_width == max(completions[row] for row in part.rows)
    full = -(-len(rows) // num_parts) * (max(prompts) + max(completions))
    assert max(part.padded_tokens for part in parts) <= full
