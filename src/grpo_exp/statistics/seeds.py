"""What a few seeds say about one point of a sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from grpo_exp.statistics.intervals import Interval


def seed_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval | None:
    """Return Student's interval of the mean over seeds: `mean ± t_{S-1} s / sqrt(S)`.

    Not a bootstrap: with 3 seeds one of their 27 resamples in nine is constant, and a percentile interval of nominal
    95 % covers about two thirds (tests/unit/statistics/test_coverage.py). Student's interval covers what it says for
    values that are about normal, and is wide with few seeds because little is known then: 2.5 s on either side with
    3.

    Args:
        values: One value per seed.
        confidence: Level, between 0 and 1.

    Returns:
        The interval, cut at 0 and 1 if all values lie between them; None for fewer than two values, and where all are
        equal: they show no spread.
    """
    found = np.asarray(values, dtype=float)
    if len(found) < 2 or np.ptp(found) == 0:
        return None
    mean, spread = float(found.mean()), float(found.std(ddof=1))
    half_width = float(stats.t.ppf(0.5 + confidence / 2, len(found) - 1)) * spread / math.sqrt(len(found))
    low, high = mean - half_width, mean + half_width
    if found.min() >= 0 and found.max() <= 1:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(low, high)
