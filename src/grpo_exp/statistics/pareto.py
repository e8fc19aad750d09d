"""Which points no other one beats in both cost and quality."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_set(costs: Sequence[float], qualities: Sequence[float]) -> list[int]:
    """Return the indices of the points that are not dominated, the cheapest first.

    A point is dominated by one that costs no more and is no worse, and is better in one of the two. Of equal points all
    are kept.
    """
    order = sorted(range(len(costs)), key=lambda i: (costs[i], -qualities[i]))
    kept: list[int] = []
    for index in order:
        best = kept[-1] if kept else None
        is_equal = best is not None and (costs[index], qualities[index]) == (costs[best], qualities[best])
        if best is None or qualities[index] > qualities[best] or is_equal:
            kept.append(index)
    return kept
