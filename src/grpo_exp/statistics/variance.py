"""How much runs of one point vary, where each point has few seeds: its own variance, drawn towards that of all points.

With 3 seeds a variance of its own has 2 degrees of freedom, which finds nothing; one variance for all points finds
what is not there, where some points are noisier than others (those near collapse usually are). So each variance is
weighed against the common one by how much the variances differ among themselves beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special

#: Prior degrees of freedom from which on it does not matter that there are not infinitely many.
_MANY = 1e6


@dataclass(frozen=True, slots=True)
class Variances:
    """Estimates of the variance of each point's runs."""

    values: np.ndarray
    """Moderated, shape (num_points,); NaN where nothing is known."""
    own: np.ndarray
    """From each point's own runs, of the same shape."""
    own_degrees: np.ndarray
    """Degrees of freedom that each point's own runs bring, of the same shape."""
    prior_degrees: float
    """Degrees of freedom that the common variance brings to each; infinitely many where all have one variance."""
    pooled_degrees: float
    """Degrees of freedom of all points together: no estimate has more."""

    def of_two(self, first: int, second: int) -> tuple[float, float]:
        """Return the sum of the variances of two points and its degrees of freedom.

        Those of the common variance, which both share and which count once, and the fewer of their own: each of them
        may be the noisy one.
        """
        total = float(self.values[first] + self.values[second])
        if not np.isfinite(self.prior_degrees):
            return total, self.pooled_degrees
        own = float(min(self.own_degrees[first], self.own_degrees[second]))
        return total, min(self.prior_degrees + own, self.pooled_degrees)

    def of_many(self, points: Sequence[int] | np.ndarray, factors: np.ndarray) -> tuple[float, float]:
        """Return `sum f_p s_p²` over the points' own variances, and its degrees of freedom.

        Many points have enough degrees of freedom together, so nothing is borrowed: moderated variances, each fit for a
        test of its own, add up to too little. Degrees by Satterthwaite: `(sum f_p s_p²)² / sum((f_p s_p²)² / d_p)`.

        Args:
            points: Their indices, each once.
            factors: Above 0, one for each of them.

        Source: Satterthwaite (1946), "An approximate distribution of estimates of variance components", Biometrics
        Bulletin 2, 110-114.
        """
        known = self.own_degrees[points] > 0
        parts, degrees = (factors * self.own[points])[known], self.own_degrees[points][known]
        if not parts.sum() > 0:
            return 0.0, 0.0
        # What has no degrees of freedom of its own is taken to be as noisy as the others are on average.
        total = float(parts.sum() * (factors.sum() / factors[known].sum()))
        return total, min(float(parts.sum() ** 2 / (parts**2 / degrees).sum()), self.pooled_degrees)


def moderate(own: np.ndarray, degrees: np.ndarray) -> Variances:
    """Return moderated variances: `(d0 s0² + d_p s_p²) / (d0 + d_p)`.

    d0 and s0² are found from the mean and variance of the logarithms `e_p = log s_p² - psi(d_p / 2) + log(d_p / 2)`:
    `trigamma(d0 / 2)` is the part of their variance that `trigamma(d_p / 2)` does not explain. Where nothing is left,
    the variances do not differ beyond chance: all get the pooled one.

    Args:
        own: Variance of each point, shape (num_points,), 0 or more; what has no degrees of freedom is not looked at.
        degrees: Degrees of freedom of each, of the same shape, 0 or more; need not be whole.

    Source: Smyth (2004), "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", Statistical Applications in Genetics and Molecular Biology 3, article 3, sections 3 and 6.2.
    """
    known = degrees > 1e-9
    if not known.any():
        return Variances(np.full(len(own), np.nan), own, np.zeros(len(own)), 0.0, 0.0)
    of_points = np.where(known, degrees, 0.0)
    pooled_degrees = float(of_points.sum())
    pooled = float((own[known] * degrees[known]).sum() / pooled_degrees)
    prior_degrees, prior = _prior(own[known], degrees[known], pooled)
    if not np.isfinite(prior_degrees):
        return Variances(np.full(len(own), pooled), own, of_points, np.inf, pooled_degrees)
    values = (prior_degrees * prior + of_points * np.where(known, own, 0.0)) / (prior_degrees + of_points)
    return Variances(values, own, of_points, prior_degrees, pooled_degrees)


def _prior(own: np.ndarray, degrees: np.ndarray, pooled: float) -> tuple[float, float]:
    """Return degrees of freedom and value of the common variance; infinitely many where the variances do not differ."""
    if len(own) < 3 or pooled == 0:
        return np.inf, pooled
    # A variance of 0 has no logarithm: seeds that agree to the last digit are taken for a very small spread.
    floored = np.maximum(own, 1e-5 * pooled)
    logs = np.log(floored) - special.digamma(degrees / 2) + np.log(degrees / 2)
    unexplained = float(logs.var(ddof=1) - special.polygamma(1, degrees / 2).mean())
    if unexplained <= special.polygamma(1, _MANY / 2):
        return np.inf, pooled
    root: Any = optimize.brentq(lambda x: float(special.polygamma(1, x)) - unexplained, 1e-6, _MANY)
    half = float(root)
    return 2 * half, float(np.exp(logs.mean() + special.digamma(half) - np.log(half)))
