"""The intervals equal values worked out by hand."""

from __future__ import annotations

import math

import pytest

from grpo_exp.statistics import clustered_interval, wilson_interval

Z = 1.959963984540054  # the 97.5 % point of the standard normal distribution


def test_wilson_for_five_of_ten() -> None:
    # p = 1/2, z² = 3.841459. Centre (1/2 + z²/20) / (1 + z²/10) = 1/2.
    # Half width z·sqrt(1/40 + z²/400) / (1 + z²/10) = 1.959964 · 0.186021 / 1.384146 = 0.263407.
    assert wilson_interval(5, 10) == pytest.approx((0.236593, 0.763407), abs=1e-6)


def test_wilson_has_a_width_where_all_or_none_are_right() -> None:
    # p = 0: centre and half width are both z²/(2n) / (1 + z²/n), so the high end is z² / (n + z²).
    assert wilson_interval(0, 10) == pytest.approx((0.0, Z**2 / (10 + Z**2)))
    assert wilson_interval(10, 10) == pytest.approx((1 - Z**2 / (10 + Z**2), 1.0))


def test_a_higher_confidence_is_a_wider_interval() -> None:
    narrow, wide = wilson_interval(5, 10, confidence=0.8), wilson_interval(5, 10, confidence=0.99)
    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(("num_correct", "num_trials"), [(0, 0), (-1, 10), (11, 10)])
def test_there_is_no_wilson_interval_of_what_is_no_proportion(num_correct: float, num_trials: int) -> None:
    assert wilson_interval(num_correct, num_trials) is None


def test_clustered_uses_the_spread_between_prompts() -> None:
    # Mean 1/2; squares 1/4 + 0 + 1/4 + 0 = 1/2; standard error sqrt(1/2 / (4·3)) = 0.2041241.
    half_width = Z * 0.2041241
    assert clustered_interval([0.0, 0.5, 1.0, 0.5]) == pytest.approx((0.5 - half_width, 0.5 + half_width))


def test_samples_that_repeat_their_prompt_do_not_narrow_the_interval() -> None:
    # 50 prompts, all samples of a prompt alike, 25 right: the textbook interval of 50 independent trials but
    # for the n - 1 of the variance; 200 "independent" samples would claim half of that width.
    interval = clustered_interval([1.0] * 25 + [0.0] * 25)
    half_width = Z * math.sqrt(0.25 / 49)
    assert interval == pytest.approx((0.5 - half_width, 0.5 + half_width))


def test_clustered_falls_back_to_wilson_where_there_is_no_spread() -> None:
    assert clustered_interval([1.0] * 20) == wilson_interval(20, 20)
    assert clustered_interval([0.25]) == wilson_interval(0.25, 1)
    assert clustered_interval([]) is None


def test_clustered_is_cut_only_where_the_scores_are() -> None:
    cut = clustered_interval([0.0, 1.0])
    assert cut == (0.0, 1.0)
    # Mean 0, squares 2, standard error sqrt(2 / 2) = 1.
    assert clustered_interval([-1.0, 1.0]) == pytest.approx((-Z, Z))
