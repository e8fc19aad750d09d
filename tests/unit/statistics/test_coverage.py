"""Simulations with fixed seeds: intervals of nominal 95 % cover the truth in 90 to 98 % of the cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grpo_exp.statistics.at_k import maj_at_k, pass_at_k
from grpo_exp.statistics.bootstrap import prompt_bootstrap
from grpo_exp.statistics.intervals import clustered_interval
from grpo_exp.statistics.seeds import seed_interval

#: Pass rates of prompts: hard and easy ones with few between, as in maths benchmarks; and all about alike.
PRIORS = {"hard and easy": (0.4, 0.6), "alike": (4.0, 6.0)}
NUM_TRIALS = 400


def coverage(covers: Callable[[np.random.Generator], bool], num_trials: int = NUM_TRIALS) -> float:
    generator = np.random.default_rng(0)
    return float(np.mean([covers(generator) for _ in range(num_trials)]))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("num_prompts", [30, 200])
def test_bootstrap_over_prompts_covers_pass_at_k(prior: str, num_prompts: int) -> None:
    """Truth: pass@4 of a prompt with rate p is 1 - (1 - p)^4; the mean over the prior is 1 - E[(1 - p)^4]."""
    a, b = PRIORS[prior]
    truth = 1 - float(np.prod([(b + i) / (a + b + i) for i in range(4)]))  # moments of the beta distribution

    def covers(generator: np.random.Generator) -> bool:
        right = generator.binomial(8, generator.beta(a, b, num_prompts))
        interval = prompt_bootstrap([pass_at_k(8, int(c), 4) for c in right], num_resamples=400)
        assert interval is not None
        return interval.low <= truth <= interval.high

    assert 0.90 <= coverage(covers) <= 0.98


def test_bootstrap_over_prompts_covers_mean_and_majority() -> None:
    """A prompt has two answers only, so maj@3 is right with p³ + 3p²(1 - p); the mean over a uniform prior is 1/2."""

    def covers(generator: np.random.Generator) -> np.ndarray:
        right = generator.binomial(9, generator.uniform(size=60))
        means = prompt_bootstrap(right / 9, num_resamples=400)
        votes = [maj_at_k(int(c), [9 - int(c)] if c < 9 else [], 0, 3) for c in right]
        majority = prompt_bootstrap(votes, num_resamples=400)
        assert means is not None
        assert majority is not None
        return np.array([means.low <= 0.5 <= means.high, majority.low <= 0.5 <= majority.high])

    generator = np.random.default_rng(0)
    rates = np.mean([covers(generator) for _ in range(NUM_TRIALS)], axis=0)
    assert (rates >= 0.90).all()
    assert (rates <= 0.98).all()


def test_interval_of_held_out_accuracy_covers() -> None:
    def covers(generator: np.random.Generator) -> bool:
        right = generator.binomial(4, generator.beta(0.4, 0.6, 200))
        interval = clustered_interval((right / 4).tolist())
        assert interval is not None
        return interval.low <= 0.4 <= interval.high

    assert 0.90 <= coverage(covers) <= 0.98


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 10])
def test_interval_over_seeds_covers(num_seeds: int) -> None:
    def covers(generator: np.random.Generator) -> bool:
        interval = seed_interval(generator.normal(10.0, 1.0, num_seeds).tolist())
        assert interval is not None
        return interval.low <= 10.0 <= interval.high

    assert 0.93 <= coverage(covers, 4000) <= 0.97


def test_percentile_bootstrap_over_three_seeds_would_not_cover() -> None:
    """Why seeds get Student's interval: all 27 resamples of three values, so nothing depends on the number of draws."""
    index = np.array(np.meshgrid(*[range(3)] * 3)).reshape(3, -1)
    samples = np.random.default_rng(0).normal(size=(4000, 3))
    low, high = np.quantile(samples[:, index].mean(axis=1), [0.025, 0.975], axis=1)
    assert 0.6 < np.mean((low <= 0) & (high >= 0)) < 0.75


def test_interval_over_seeds_stays_between_the_bounds_of_an_accuracy() -> None:
    interval = seed_interval([0.99, 0.97, 1.0])
    assert interval is not None
    assert interval.high == 1.0
    assert seed_interval([0.9, 0.9, 0.9]) is None
    assert seed_interval([0.9]) is None


def test_bootstrap_of_values_without_spread_says_so() -> None:
    assert prompt_bootstrap([]) is None
    assert prompt_bootstrap([0.5] * 20) is None
    # All 20 right: Wilson's low end n / (n + z²) = 20 / 23.8415.
    assert prompt_bootstrap([1.0] * 20) == pytest.approx((20 / 23.841459, 1.0))
