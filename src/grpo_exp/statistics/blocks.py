"""Points of a sweep compared over the seeds that they share.

A seed is a block: it draws the prompts' order and the held-out problems of all points, so that what it adds to all of
them falls out of a difference. The model is `y_ps = mu_p + b_s + e_ps` with `Var(e_ps) = sigma_p²`; every comparison
is a mean of differences between runs of one seed (a paired test), with variances that all points inform (`variance`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import stats

from grpo_exp.statistics.intervals import Interval
from grpo_exp.statistics.variance import Variances, moderate

#: A pair of points: the second minus the first.
Pair = tuple[int, int]
#: What is smaller beside the largest value is rounding and no noise.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference between points, with what the seeds say about it."""

    difference: float
    standard_error: float
    degrees: float
    """Degrees of freedom of the standard error."""
    num_pairs: int
    """Differences between runs of one seed that went into it."""
    p_value: float
    """Two-sided, before any correction."""

    def interval(self, *, confidence: float = 0.95) -> Interval:
        """Return the interval of the difference alone, without regard to other comparisons."""
        half_width = _quantile(confidence, self.degrees) * self.standard_error
        return Interval(self.difference - half_width, self.difference + half_width)


@lru_cache(maxsize=4096)  # a sweep of a thousand runs has tens of thousands of pairs, and few degrees of freedom
def _quantile(confidence: float, degrees: float) -> float:
    return float(stats.t.ppf(0.5 + confidence / 2, degrees))


class BlockDesign:
    """Values of points over seeds.

    Args:
        values: Shape (num_points, num_seeds); NaN where a run has no value.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.asarray(values, dtype=float)
        self.present = ~np.isnan(self.values)
        first_twins = first_of_twins(self.values)
        distinct, self._place = np.unique(first_twins, return_inverse=True)
        own, degrees = residual_variances(self.values[distinct])
        self.variances: Variances = moderate(own, degrees)
        """Of the points that are different runs: twins are one of them."""

    @property
    def can_compare(self) -> bool:
        """Whether runs of a point with one another say anything about noise: more than one seed, and some spread."""
        found = self.variances.values
        return bool(np.isfinite(found).any() and np.nanmax(found) > 0)

    def contrast(self, pairs: Sequence[Pair]) -> Contrast | None:
        """Return the mean over pairs of points of (second minus first), each pair by the seeds that both have.

        Args:
            pairs: One pair for two points; for a marginal effect the pairs that differ in nothing else.

        Returns:
            None where no pair shares a seed, or nothing is known about noise. Pairs that share no seed are left out.
        """
        found = [(first, second, self._shared(first, second)) for first, second in pairs]
        found = [(first, second, shared) for first, second, shared in found if shared.any()]
        if not found or not self.can_compare:
            return None
        differences = [
            float((self.values[second] - self.values[first])[shared].mean()) for first, second, shared in found
        ]
        if len(found) == 1:
            variance, degrees = self._of_two(*found[0][:2])
            variance /= float(found[0][2].sum())
        else:
            factors = self._squared_weights(found)
            used = np.flatnonzero(factors)
            variance, degrees = self.variances.of_many(used, factors[used])
        if not variance > 0:
            return None
        difference, error = float(np.mean(differences)), float(np.sqrt(variance))
        p_value = float(2 * stats.t.sf(abs(difference) / error, degrees))
        return Contrast(difference, error, degrees, int(sum(shared.sum() for *_, shared in found)), p_value)

    def all_pairs(self) -> dict[Pair, Contrast]:
        """Return the contrast of each two points that share a seed; nothing where nothing is known about noise."""
        found: dict[Pair, Contrast] = {}
        if not self.can_compare:
            return found
        for first in range(len(self.values) - 1):
            later = slice(first + 1, None)
            shared = self.present[first] & self.present[later]
            counts = shared.sum(axis=1)
            differences = np.where(shared, self.values[later] - self.values[first], 0.0).sum(axis=1)
            for place in np.flatnonzero(counts):
                second = first + 1 + int(place)
                variance, degrees = self._of_two(first, second)
                if variance > 0:
                    estimate, error = float(differences[place] / counts[place]), math.sqrt(variance / counts[place])
                    found[first, second] = Contrast(estimate, error, degrees, int(counts[place]), 0.0)
        ratios = np.array([abs(c.difference) / c.standard_error for c in found.values()])
        p_values = 2 * stats.t.sf(ratios, np.array([c.degrees for c in found.values()]))
        return {pair: replace(c, p_value=float(p)) for (pair, c), p in zip(found.items(), p_values, strict=True)}

    def _of_two(self, first: int, second: int) -> tuple[float, float]:
        return self.variances.of_two(int(self._place[first]), int(self._place[second]))

    def _squared_weights(self, found: Sequence[tuple[int, int, np.ndarray]]) -> np.ndarray:
        """Return for each distinct point the sum over its runs of the squared weight that a run has in the mean.

        Runs of twins are the same runs, so their weights are added before they are squared: a setting that changes
        nothing must not make one experiment count as two. Where they all cancel (twins against each other, difference
        0) they are taken as if they were not the same.
        """
        shape = (len(self.variances.values), self.values.shape[1])
        weights, squares = np.zeros(shape), np.zeros(shape)
        for first, second, shared in found:
            weight = shared / (len(found) * shared.sum())
            for point, sign in ((first, -1.0), (second, 1.0)):
                weights[self._place[point]] += sign * weight
                squares[self._place[point]] += weight**2
        return ((weights**2) if weights.any() else squares).sum(axis=1)

    def _shared(self, first: int, second: int) -> np.ndarray:
        return self.present[first] & self.present[second]


def first_of_twins(values: np.ndarray) -> np.ndarray:
    """Return for each point the first one whose runs have the same values: itself, where there is none before it.

    Two points that agree to the last digit in two or more seeds, and in all that both have, are the same runs: what
    tells them apart changed nothing. Points whose runs all have one value do not count: many reach 0 or 1.

    Args:
        values: Shape (num_points, num_seeds); NaN where there is none.

    Returns:
        Indices, shape (num_points,).
    """
    first = np.arange(len(values))
    present = ~np.isnan(values)
    for point in range(1, len(values)):
        before = np.flatnonzero(first[:point] == np.arange(point))
        shared = present[before] & present[point]
        same = np.where(shared, values[before] == values[point], True).all(axis=1)
        spread = np.where(shared, values[point], -np.inf).max(axis=1) > np.where(shared, values[point], np.inf).min(
            axis=1
        )
        twins = before[same & spread]
        if len(twins):
            first[point] = twins[0]
    return first


def residual_variances(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of each point's runs around `mu_p + b_s`, and its degrees of freedom.

    Least squares over points and seeds. With `z_ps` the indicator of the seed minus its mean over the point's seeds,
    and `A = sum z_ps z_psᵀ`, the leverage of a run is `1/n_p + z_psᵀ A⁺ z_ps`; the degrees of freedom of a point are
    the sum of one minus the leverages of its runs. Over all points they add up to `(P - 1)(S - 1)` in a complete
    table.

    Args:
        values: Shape (num_points, num_seeds); NaN where there is none.

    Returns:
        Variances and degrees, each of shape (num_points,); variance 0 where there are no degrees of freedom.
    """
    present = ~np.isnan(values)
    counts = present.sum(axis=1, keepdims=True)
    share = np.divide(present, counts, out=np.zeros(values.shape), where=counts > 0)
    filled = np.where(present, values, 0.0)
    centred = np.where(present, filled - (filled * share).sum(axis=1, keepdims=True), 0.0)
    # Seed effects from what is left of the points' means.
    normal = np.diag(present.sum(axis=0).astype(float)) - present.T.astype(float) @ share
    inverse = np.linalg.pinv(normal, hermitian=True)
    effects = inverse @ centred.sum(axis=0)
    residuals = np.where(present, centred - effects + (share @ effects)[:, None], 0.0)
    residuals[np.abs(residuals) <= _ROUNDING * np.abs(filled).max(initial=0.0)] = 0.0
    # zᵀ A⁺ z for z = e_s - share_p, for all points and seeds at once.
    crossed = share @ inverse
    quadratic = np.diag(inverse)[None, :] - 2 * crossed + (crossed * share).sum(axis=1, keepdims=True)
    own_share = np.divide(1.0, counts, out=np.zeros(counts.shape), where=counts > 0)
    degrees = np.where(present, 1 - own_share - quadratic, 0.0).sum(axis=1)
    degrees = np.where(degrees > 1e-9, degrees, 0.0)
    squares = (residuals**2).sum(axis=1)
    return np.divide(squares, degrees, out=np.zeros(len(values)), where=degrees > 0), degrees
