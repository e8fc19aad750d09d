"""Rows of unequal length, divided into parts whose largest is as small as possible. Plain numbers, no tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are run together: their indices, and the widths that the longest of them need."""

    rows: tuple[int, ...]
    prompt_width: int
    completion_width: int

    @property
    def padded_tokens(self) -> int:
        """What it costs: rows x width."""
        return len(self.rows) * (self.prompt_width + self.completion_width)


def divide(
    prompt_lengths: Sequence[int], completion_lengths: Sequence[int], rows: Sequence[int], num_parts: int
) -> list[Part]:
    """Divide rows into parts whose largest has as few padded tokens as possible, the longest rows first.

    The rows stand in the order of their length and are cut where the least budget of tokens a part wants it. No part
    costs more than ceil(rows / num_parts) rows at the full width would.

    Args:
        prompt_lengths: Of all rows, in tokens.
        completion_lengths: Of all rows, in tokens.
        rows: Indices of those to divide.
        num_parts: How many parts, at least 1.

    Returns:
        `num_parts` parts, or one for each row where there are fewer rows.
    """
    if not rows:
        return []
    singles = {row: Part((row,), prompt_lengths[row], completion_lengths[row]) for row in rows}
    # Either order can be the better one: a prompt that is much longer than the others belongs beside long ones.
    by_completion = sorted(rows, key=lambda row: -completion_lengths[row])
    by_both = sorted(rows, key=lambda row: -singles[row].padded_tokens)
    found = [_cut_evenly([singles[row] for row in order], num_parts) for order in (by_completion, by_both)]
    best = min(found, key=lambda parts: (max(_costs(parts)), sum(_costs(parts))))
    while len(best) < min(num_parts, len(rows)):
        best = list(_split_largest(best, singles))
    return best


def _costs(parts: Sequence[Part]) -> list[int]:
    return [part.padded_tokens for part in parts]


def _cut_evenly(singles: Sequence[Part], num_parts: int) -> list[Part]:
    """Cut under the least budget that needs no more than `num_parts` parts, found by halving the interval."""
    full_width = max(part.prompt_width for part in singles) + max(part.completion_width for part in singles)
    low, high = max(_costs(singles)), -(-len(singles) // num_parts) * full_width
    while low < high:
        budget = (low + high) // 2
        if len(_fill(singles, budget)) <= num_parts:
            high = budget
        else:
            low = budget + 1
    return _fill(singles, high)


def _fill(singles: Sequence[Part], budget: int) -> list[Part]:
    """Fill one part after the other up to the budget: that needs the fewest, as a shorter part never costs more."""
    parts: list[Part] = []
    for single in singles:
        grown = _joined(parts[-1], single) if parts else single
        if parts and grown.padded_tokens <= budget:
            parts[-1] = grown
        else:
            parts.append(single)
    return parts


def _joined(first: Part, second: Part) -> Part:
    return Part(
        (*first.rows, *second.rows),
        max(first.prompt_width, second.prompt_width),
        max(first.completion_width, second.completion_width),
    )


def _split_largest(parts: Sequence[Part], singles: dict[int, Part]) -> Iterator[Part]:
    """Cut the part with the most padded tokens, among those with two rows or more, in its middle."""
    largest = max((part for part in parts if len(part.rows) > 1), key=lambda part: part.padded_tokens)
    for part in parts:
        if part is not largest:
            yield part
            continue
        middle = len(part.rows) // 2
        for half in (part.rows[:middle], part.rows[middle:]):
            yield _fill([singles[row] for row in half], part.padded_tokens)[0]
