"""The predicted share of informative groups: against counting all groups, and against simulated policies."""

from __future__ import annotations

import itertools
import random

import pytest

from grpo_exp.evaluation.signal import predict_signal, predict_variance


@pytest.mark.parametrize("right", range(7))
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_up_to_the_samples_it_counts_the_groups_that_can_be_drawn(right: int, size: int) -> None:
    verdicts = [True] * right + [False] * (6 - right)
    groups = list(itertools.combinations(verdicts, size))
    mixed = sum(any(group) and not all(group) for group in groups) / len(groups)
    (found,) = predict_signal([right], 6, [size])
    assert found.share == pytest.approx(mixed)
    assert not found.extrapolated


def test_one_pass_rate_for_all_prompts_is_the_formula() -> None:
    """With p = 0.25 in each of 4000 prompts with 4 samples: 1 - 0.25^16 - 0.75^16 = 0.990 at G 16."""
    draws = random.Random(0)
    counts = [sum(draws.random() < 0.25 for _ in range(4)) for _ in range(4000)]
    found = predict_signal(counts, 4, [2, 4, 16])
    assert [s.share for s in found] == pytest.approx([1 - 0.25**g - 0.75**g for g in (2, 4, 16)], abs=0.015)
    assert [s.extrapolated for s in found] == [False, False, True]


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (0.5, 3.0), (4.0, 2.0)])
def test_beyond_the_samples_it_is_within_two_hundredths_where_pass_rates_are_beta(a: float, b: float) -> None:
    draws = random.Random(1)
    rates = [draws.betavariate(a, b) for _ in range(6000)]
    counts = [sum(draws.random() < p for _ in range(8)) for p in rates]
    found = predict_signal(counts, 8, [8, 16, 32])
    truth = [sum(1 - p**g - (1 - p) ** g for p in rates) / len(rates) for g in (8, 16, 32)]
    assert [s.share for s in found] == pytest.approx(truth, abs=0.02)


def test_plain_rates_in_the_formula_would_be_biased() -> None:
    """Why it is not done: at p = 0.5 and 2 samples, k/n is 0, 0.5 or 1, and the mean of s(2) is 0.25 instead of 0.5."""
    counts = [0, 1, 1, 2]  # as often as 2 samples of p = 0.5 give them
    plain = sum(1 - (k / 2) ** 2 - (1 - k / 2) ** 2 for k in counts) / 4
    assert plain == 0.25
    assert predict_signal(counts, 2, [2])[0].share == 0.5


def test_prompts_that_are_always_or_never_solved_have_no_signal_at_any_size() -> None:
    assert [s.share for s in predict_signal([0, 8, 8, 0], 8, [2, 8, 64])] == pytest.approx([0, 0, 0], abs=1e-4)
    assert [s.share for s in predict_signal([8, 8], 8, [4, 16])] == [0, 0]


def test_error_is_that_of_a_mean_over_prompts() -> None:
    """Shares 0 and 1, two prompts: sd 0.7071, error 0.7071/sqrt(2) = 0.5."""
    (found,) = predict_signal([0, 1], 2, [2])
    assert (found.share, found.standard_error) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("call", [([], 4, [2]), ([1], 1, [2]), ([5], 4, [2]), ([-1], 4, [2]), ([1], 4, [1])])
def test_numbers_out_of_range_are_refused(call: tuple[list[int], int, list[int]]) -> None:
    with pytest.raises(ValueError, match="predict_signal"):
        predict_signal(*call)


def test_rewards_of_several_components_differ_more_often_than_verdicts() -> None:
    """Rewards 1.1, 1.0, 0.1, 0.1: of the 6 pairs one is equal, so 5/6; right or wrong 4/6. Four samples give no 8."""
    rewards = [[1.1, 1.0, 0.1, 0.1]]
    assert [s.share for s in predict_variance(rewards, [2, 4, 8])] == pytest.approx([5 / 6, 1.0])
    assert predict_signal([2], 4, [2])[0].share == pytest.approx(4 / 6)
