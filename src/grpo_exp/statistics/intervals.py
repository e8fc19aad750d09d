"""Intervals for accuracies over prompts, in plain Python: the front end uses them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson_interval(num_correct: float, num_trials: int, *, confidence: float = 0.95) -> Interval | None:
    """Return Wilson's score interval of a proportion.

    Unlike the textbook interval `p ± z·sqrt(p(1-p)/n)` it holds its level for small n and has no zero width
    at p = 0 and p = 1.

    Args:
        num_correct: Number of successes, from 0 to num_trials; need not be whole.
        num_trials: Number of independent trials.
        confidence: Level, between 0 and 1.

    Returns:
        The interval; None where there is none: without trials, or where num_correct is not between 0 and
        num_trials (a score that can be negative or above 1 is no proportion).

    Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22,
    209-212; recommended for small n by Brown, Cai and DasGupta (2001), Statistical Science 16, 101-133.
    """
    if num_trials < 1 or not 0 <= num_correct <= num_trials:
        return None
    z = _quantile(confidence)
    share = num_correct / num_trials
    denominator = 1 + z**2 / num_trials
    center = (share + z**2 / (2 * num_trials)) / denominator
    half_width = z * math.sqrt(share * (1 - share) / num_trials + z**2 / (4 * num_trials**2)) / denominator
    # The exact values at the ends are 0 and 1; rounding may miss them by a bit.
    return Interval(max(0.0, center - half_width), min(1.0, center + half_width))


def clustered_interval(prompt_means: Sequence[float], *, confidence: float = 0.95) -> Interval | None:
    """Return the interval of a mean over prompts, each sampled equally often.

    Samples of one prompt resemble each other, so they are not independent trials; the prompts are. With as
    many samples for every prompt the cluster-robust standard error is that of the prompt means,
    `sqrt(sum((m_i - m)²) / (n (n - 1)))`.

    Args:
        prompt_means: For each prompt the mean over its samples.
        confidence: Level, between 0 and 1.

    Returns:
        The interval, cut at 0 and 1 if all means lie between them. If all prompts have one mean, or there is
        only one prompt, the standard error says nothing; then Wilson's interval with the number of prompts as
        number of trials. None without prompts, and where Wilson's interval does not exist.

    Source: Miller (2024), "Adding Error Bars to Evals", arXiv:2411.00640, on clustered standard errors.
    """
    if not prompt_means:
        return None
    num_prompts = len(prompt_means)
    mean = math.fsum(prompt_means) / num_prompts
    squares = math.fsum((value - mean) ** 2 for value in prompt_means)
    if num_prompts == 1 or squares < 1e-12:
        return wilson_interval(mean * num_prompts, num_prompts, confidence=confidence)
    half_width = _quantile(confidence) * math.sqrt(squares / (num_prompts * (num_prompts - 1)))
    low, high = mean - half_width, mean + half_width
    if all(0 <= value <= 1 for value in prompt_means):
        low, high = max(0.0, low), min(1.0, high)
    return Interval(low, high)


def _quantile(confidence: float) -> float:
    """Return z with P(-z < Z < z) = confidence for a standard normal Z."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)
