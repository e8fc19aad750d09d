"""Intervals over prompts by resampling prompts: the samples of a prompt stay together (cluster bootstrap)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from grpo_exp.statistics.intervals import Interval, wilson_interval

NUM_RESAMPLES = 4000
#: Numbers drawn at a time: bounds the memory.
_BLOCK = 4_000_000


def prompt_bootstrap(
    prompt_values: Sequence[float], *, confidence: float = 0.95, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Interval | None:
    """Return the bootstrap interval of a mean over prompts.

    Prompts are drawn with replacement, each with all its samples, since samples of one prompt are no independent
    trials. The interval is the expanded percentile interval: the percentiles lie at `Phi(-sqrt(n / (n - 1)) t)` and one
    minus that, t being the quantile of Student's distribution with n - 1 degrees of freedom. The plain percentiles are
    too narrow for few prompts, by about the factor `sqrt((n - 1) / n) z / t`.

    Args:
        prompt_values: For each prompt the estimate from its samples: mean, pass@k, maj@k, or a difference of two.
        confidence: Level, between 0 and 1.
        num_resamples: Resampled means.
        seed: The same values and seed give the same interval.

    Returns:
        The interval. Where all prompts have one value, 0 or 1, Wilson's with the number of prompts as trials; None
        where all have one other value, where there is one prompt, and of nothing: nothing is known of the spread
        then.

    Source: Hesterberg (2014), "What Teachers Should Know about the Bootstrap", arXiv:1411.5279, on the expanded
    percentile interval; Miller (2024), "Adding Error Bars to Evals", arXiv:2411.00640, on prompts as clusters.
    """
    values = np.asarray(prompt_values, dtype=float)
    if len(values) == 0:
        return None
    if np.ptp(values) < 1e-12:
        constant = float(values[0])
        return (
            wilson_interval(constant * len(values), len(values), confidence=confidence) if constant in (0, 1) else None
        )
    low, high = np.quantile(_resampled_means(values, num_resamples, seed), _levels(len(values), confidence))
    return Interval(float(low), float(high))


def _levels(num_values: int, confidence: float) -> tuple[float, float]:
    quantile = stats.t.ppf(0.5 - confidence / 2, num_values - 1)
    level = float(stats.norm.cdf(math.sqrt(num_values / (num_values - 1)) * quantile))
    return level, 1 - level


def _resampled_means(values: np.ndarray, num_resamples: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = max(1, _BLOCK // len(values))
    blocks = [min(rows, num_resamples - start) for start in range(0, num_resamples, rows)]
    return np.concatenate([values[generator.integers(len(values), size=(n, len(values)))].mean(axis=1) for n in blocks])
