"""How many groups will have a learning signal: predicted from a pilot, for each number of samples per prompt.

A group of G completions has a signal where some are right and some are not. With pass rate p of its prompt that happens
with probability

    s(G) = 1 - p^G - (1 - p)^G

and the share of informative groups is its mean over prompts. Pass rates are not known, only k right ones of n samples
each; putting k/n into the formula would be biased, since s is concave (a prompt that is right 8 times of 8 would count
as hopelessly easy).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Signal:
    """Predicted share of informative groups at one group size."""

    num_generations: int
    share: float
    """Share of the groups in which the verdict differs, 0 to 1."""
    standard_error: float
    """From the spread between prompts, which are a sample; 0 for a single prompt."""
    extrapolated: bool
    """More samples than the pilot took: from a Beta distribution fitted to its pass rates."""


def predict_signal(num_right: Sequence[int], num_samples: int, sizes: Sequence[int]) -> list[Signal]:
    """Predict the share of informative groups.

    To n samples each prompt has an unbiased estimate: the chance that G drawn from the n without replacement are not of
    one verdict, `1 - C(k, G)/C(n, G) - C(n-k, G)/C(n, G)` (as pass@k in Chen et al. 2021, arXiv:2107.03374). Beyond n
    there is none, and a Beta(a, b) distribution of pass rates is fitted by moments (Skellam 1948, JRSS B 10, 257-261);
    with it `E p^G = prod_{i<G} (a + i)/(a + b + i)`.

    Args:
        num_right: For each prompt, right ones among its samples, 0 to num_samples.
        num_samples: Samples of each prompt, 2 or more.
        sizes: Group sizes to predict, 2 or more each.

    Raises:
        ValueError: No prompts, or numbers out of these ranges.
    """
    if not num_right or num_samples < 2 or min(sizes, default=2) < 2:
        raise ValueError("predict_signal: needs prompts, two samples each or more, and groups of two or more")
    if not all(0 <= right <= num_samples for right in num_right):
        raise ValueError(f"predict_signal: counts must lie between 0 and {num_samples}")
    return [
        _unbiased(_verdicts(num_right, num_samples), size)
        if size <= num_samples
        else _fitted(num_right, num_samples, size)
        for size in sizes
    ]


def predict_variance(rewards: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[Signal]:
    """Predict the share of groups whose rewards differ, whatever the reward is made of: 1 - frac_reward_zero_std.

    As `predict_signal` up to the number of samples, with each different reward for a verdict of its own:
    `1 - sum_v C(n_v, G)/C(n, G)`. Larger sizes are left out.

    Args:
        rewards: For each prompt the rewards of its samples, equally many.
        sizes: Group sizes to predict, 2 or more each.
    """
    return [_unbiased([Counter(group) for group in rewards], size) for size in sizes if size <= len(rewards[0])]


def _unbiased(counts: Sequence[Mapping[Any, int]], size: int) -> Signal:
    values = []
    for count in counts:
        ways = math.comb(sum(count.values()), size)
        values.append(1 - sum(math.comb(number, size) for number in count.values()) / ways)
    return Signal(size, *_mean_and_error(values), extrapolated=False)


def _verdicts(num_right: Sequence[int], num_samples: int) -> list[Mapping[Any, int]]:
    return [{True: right, False: num_samples - right} for right in num_right]


def _fitted(num_right: Sequence[int], num_samples: int, size: int) -> Signal:
    # The error is that of the largest size that has an unbiased estimate; the fit adds what nobody can know.
    error = _unbiased(_verdicts(num_right, num_samples), num_samples).standard_error
    a_b = _fit_beta(num_right, num_samples)
    mean = sum(num_right) / (len(num_right) * num_samples)
    if a_b is None:  # no spread between prompts beyond that of their samples: one pass rate for all
        share = 1 - mean**size - (1 - mean) ** size
    else:
        a, b = a_b
        total = a + b
        share = 1 - _moment(a, total, size) - _moment(b, total, size)
    return Signal(size, share, error, extrapolated=True)


def _moment(shape: float, total: float, size: int) -> float:
    return math.prod((shape + i) / (total + i) for i in range(size))


def _fit_beta(num_right: Sequence[int], num_samples: int) -> tuple[float, float] | None:
    """Fit by the first two factorial moments, which the samples estimate without bias."""
    count = len(num_right)
    first = sum(num_right) / (count * num_samples)
    second = sum(right * (right - 1) for right in num_right) / (count * num_samples * (num_samples - 1))
    variance = second - first**2
    if variance <= 1e-12 or not 0 < first < 1:
        return None
    total = first * (1 - first) / variance - 1
    if total <= 1e-6:  # all prompts are always right or never: nothing between
        total = 1e-6
    return first * total, (1 - first) * total


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
