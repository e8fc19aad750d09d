"""pass@k and maj@k equal the mean over all subsets of k samples, looked at one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import pytest

from grpo_exp.statistics.at_k import maj_at_k, pass_at_k

#: Samples of one prompt: R is right, N has no answer, other letters are wrong answers.
PROMPTS = ["R", "N", "A", "RRRR", "AAAA", "RNAB", "RRAAB", "RRAABBNN", "RAAABBC", "RRRAABCNN", "RABCDEFG", "NNNNR"]


def by_hand_pass(samples: str, k: int) -> Fraction:
    subsets = list(itertools.combinations(samples, k))
    return Fraction(sum("R" in subset for subset in subsets), len(subsets))


def by_hand_maj(samples: str, k: int) -> Fraction:
    """Share of subsets that the right answer wins; a tie of t answers is won by each in 1 of t cases."""
    won = Fraction(0)
    subsets = list(itertools.combinations(samples, k))
    for subset in subsets:
        votes = Counter(answer for answer in subset if answer != "N")
        winners = [answer for answer, count in votes.items() if count == max(votes.values())]
        won += Fraction("R" in winners, max(1, len(winners)))
    return won / len(subsets)


@pytest.mark.parametrize("samples", PROMPTS)
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(samples: str) -> None:
    for k in range(1, len(samples) + 1):
        assert pass_at_k(len(samples), samples.count("R"), k) == pytest.approx(
            float(by_hand_pass(samples, k)), abs=1e-12
        )


@pytest.mark.parametrize("samples", PROMPTS)
def test_maj_at_k_is_the_share_of_subsets_that_the_right_answer_wins(samples: str) -> None:
    counts = Counter(samples)
    wrong = [count for answer, count in counts.items() if answer not in "RN"]
    for k in range(1, len(samples) + 1):
        found = maj_at_k(counts["R"], wrong, counts["N"], k)
        assert found == pytest.approx(float(by_hand_maj(samples, k)), abs=1e-12), (samples, k)


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    # One of 2000 is right: k samples hold it with probability k / n.
    assert pass_at_k(2000, 1, 500) == pytest.approx(0.25)


def test_maj_at_1_is_the_share_of_right_samples() -> None:
    assert maj_at_k(3, [2, 1], 2, 1) == pytest.approx(3 / 8)


@pytest.mark.parametrize(("num_samples", "num_right", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_numbers_out_of_range_are_refused(num_samples: int, num_right: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"must be from"):
        pass_at_k(num_samples, num_right, k)
