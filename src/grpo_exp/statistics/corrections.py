"""Correction of p-values for many comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that naming all at or below alpha names a false one with probability alpha at most.

    Sorted ascending, the i-th of m (from 0) is multiplied by m - i, made no smaller than the one before, and cut at 1.
    It holds whatever the dependence between the tests.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6, 65-70.
    """
    given = np.asarray(p_values, dtype=float)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * (len(given) - np.arange(len(given))))
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.tolist()
