"""Which prompts the online curriculum draws, what it learns from a batch, and that its state decides all of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from grpo_exp.backends.trl.online_curriculum import OnlineCurriculum
from grpo_exp.settings.dataset_preparation import Curriculum


def build(rates: list[float | None], *, seed: int = 0, **fields: Any) -> OnlineCurriculum:
    return OnlineCurriculum(rates, seed, Curriculum(order="online", **{"exploration": 0.0, **fields}))


def test_no_prompt_comes_twice_in_a_batch_while_there_are_enough() -> None:
    curriculum = build([0.5] * 10)
    for count in (1, 4, 10):
        drawn = curriculum.take(count)
        assert len(drawn) == len(set(drawn)) == count
    assert curriculum.position == 15
    assert Counter(curriculum.take(25)).most_common()[-1][1] == 2  # two whole rounds and half of one


def test_prompts_are_drawn_as_often_as_the_variance_of_their_success_says() -> None:
    """Weights p(1-p): 0.25 for 0.5 and 0.09 for 0.9, so the first of two is drawn in 0.25 / 0.34 = 73.5 % of cases.

    Of 2000 draws 1470 are expected, with a standard deviation of sqrt(2000 * 0.735 * 0.265) = 20; four of them are 80.
    """
    curriculum = build([0.5, 0.9])
    first = sum(curriculum.take(1) == [0] for _ in range(2000))
    assert abs(first - 1470) < 80


def test_solved_and_hopeless_prompts_come_last() -> None:
    curriculum = build([0.0, 1.0, 0.9, None, 0.0])
    for _ in range(50):
        assert set(curriculum.take(2)) == {2, 3}  # an unseen prompt may be worth the most
    assert set(curriculum.take(3)) > {2, 3}  # the rest is filled with those of no weight


def test_exploration_draws_without_regard_to_success() -> None:
    """Prompt 1 is solved. With exploration 0.5 half of the single draws are alike over both: a quarter are prompt 1.

    Of 2000 draws 500 are expected, with a standard deviation of sqrt(2000 * 0.25 * 0.75) = 19; four of them are 76.
    """
    curriculum = build([0.5, 1.0], exploration=0.5)
    solved = sum(curriculum.take(1) == [1] for _ in range(2000))
    assert abs(solved - 500) < 76


def test_estimates_forget() -> None:
    """Memory 0.75: the first counts alone, then 0.75 x 1 + 0.25 x 0 = 0.75, then 0.75 x 0.75 + 0.25 x 1 = 0.8125."""
    curriculum = build([None, 0.5], memory=0.75)
    assert curriculum.seen_fraction == 0.0
    estimates = []
    for success in (1.0, 0.0, 1.0):
        curriculum.observe(0, success)
        estimates.append(curriculum.estimate(0))
    assert estimates == [1.0, 0.75, 0.8125]
    assert curriculum.seen_fraction == 0.5


def test_state_is_all_that_the_draws_depend_on() -> None:
    whole, resumed = build([0.5] * 30, seed=3), build([0.5] * 30, seed=3)
    for _ in range(5):
        for index in whole.take(4):
            whole.observe(index, index / 30)
    resumed.load_state(whole.state())
    assert [whole.take(4) for _ in range(5)] == [resumed.take(4) for _ in range(5)]
    assert build([0.5] * 30, seed=3).take(10) != build([0.5] * 30, seed=4).take(10)


@pytest.mark.parametrize("count", [1, 7])
def test_state_does_not_change_with_the_curriculum_it_was_taken_from(count: int) -> None:
    curriculum = build([0.5] * 10)
    state = curriculum.state()
    curriculum.take(count)
    curriculum.observe(0, 1.0)
    assert state == {"position": 0, "rates": [0.5] * 10, "seen": [False] * 10}
