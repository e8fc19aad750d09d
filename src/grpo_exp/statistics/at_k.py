"""What k samples of one prompt are worth: pass@k, maj@k.

Both are means over all subsets of k of the n samples that were drawn, so that they use every sample and are unbiased
for k fresh ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the probability that one or more of k samples are right.

    `1 - C(n - c, k) / C(n, k)`, as a product, since the binomials overflow: all k are wrong with probability
    `prod_{i=0}^{k-1} (n - c - i) / (n - i)`.

    Args:
        num_samples: n, samples that were drawn.
        num_right: c of them that are right, 0 to n.
        k: 1 to n.

    Raises:
        ValueError: A number is out of range.

    Source: Chen et al. (2021), "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, equation 1.
    """
    _check(num_samples, num_right, k)
    all_wrong = 1.0
    for i in range(k):
        all_wrong *= max(0, num_samples - num_right - i) / (num_samples - i)
    return 1.0 - all_wrong


def maj_at_k(num_right: int, wrong_counts: Sequence[int], num_without_answer: int, k: int) -> float:
    """Return the probability that the most frequent answer among k samples is the right one.

    All subsets of k samples count the same. Of answers that are equally frequent one is drawn, each with the same
    probability. A sample without an answer does not vote; where nobody votes, nothing is right.

    With m votes for the right answer among k (m from 1 on), c right samples and wrong answers that were given n_1,
    n_2, ... times: the sum over m of `C(c, m)` times the number of ways to draw the other k - m samples so that no
    wrong answer has more than m votes, each way divided by 1 + the number of wrong answers with exactly m, over `C(n,
    k)`.

    Args:
        num_right: Samples with the right answer, however it is spelled.
        wrong_counts: For each wrong answer how many samples gave it; all above 0.
        num_without_answer: Samples in which no answer was found.
        k: 1 to the number of samples.

    Raises:
        ValueError: A number is out of range.

    Source of the vote: Wang et al. (2022), "Self-Consistency Improves Chain of Thought Reasoning in Language Models",
    arXiv:2203.11171.
    """
    num_samples = num_right + sum(wrong_counts) + num_without_answer
    _check(num_samples, num_right, k)
    if any(count < 1 for count in wrong_counts):
        raise ValueError(f"wrong_counts={list(wrong_counts)}: each wrong answer was given once or more")
    return _maj_at_k(num_right, tuple(sorted(wrong_counts)), num_without_answer, k)


@lru_cache(maxsize=65_536)  # prompts resemble each other: thousands of them have a few hundred different counts
def _maj_at_k(num_right: int, wrong_counts: tuple[int, ...], num_without_answer: int, k: int) -> float:
    total = math.comb(num_right + sum(wrong_counts) + num_without_answer, k)
    multiplicity = Counter(wrong_counts)
    won = 0.0
    for votes in range(1, min(num_right, k) + 1):
        # Ways to draw the others, by (how many are drawn, how many wrong answers tie).
        ways = {(drawn, 0): math.comb(num_without_answer, drawn) for drawn in range(num_without_answer + 1)}
        for count, times in multiplicity.items():
            for _ in range(times):
                ways = _with_answer(ways, count, votes=votes, most=k - votes)
        fitting = ((ties, number) for (drawn, ties), number in ways.items() if drawn == k - votes)
        won += math.comb(num_right, votes) * sum(number / total / (1 + ties) for ties, number in fitting)
    return won


def _with_answer(ways: dict[tuple[int, int], int], count: int, *, votes: int, most: int) -> dict[tuple[int, int], int]:
    """Add a wrong answer that was given `count` times and gets at most `votes` votes."""
    found: dict[tuple[int, int], int] = {}
    for (drawn, ties), number in ways.items():
        for more in range(min(count, votes, most - drawn) + 1):
            key = (drawn + more, ties + (more == votes))
            found[key] = found.get(key, 0) + number * math.comb(count, more)
    return found


def _check(num_samples: int, num_right: int, k: int) -> None:
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"num_right={num_right}: must be from 0 to the {num_samples} samples")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k={k}: must be from 1 to the {num_samples} samples that were drawn")
