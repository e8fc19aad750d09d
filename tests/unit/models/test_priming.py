"""The noisy teacher's shares, and the examples made of its answers."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch

from grpo_exp.data.arithmetic import Problem
from grpo_exp.models import priming
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import Priming

SETTINGS = Priming()
ANSWER = re.compile(r"<think>(\d+)\+(\d+)=(\d+)</think>(?:\\boxed\{(\d+)\}|(\d+))")
COUNT = 4000


def answers(problem: Problem, count: int, settings: Priming = SETTINGS) -> list[str]:
    return [priming.teacher_answer(problem, settings, random.Random(f"0 {i}")) for i in range(count)]


def kind(answer: str, right: int) -> str:
    found = ANSWER.fullmatch(answer)
    assert found is not None
    thought, boxed, bare = int(found[3]), found[4], found[5]
    assert thought == int(boxed or bare)  # what it says is what it thought
    return f"{'right' if thought == right else 'wrong'} {'boxed' if boxed else 'bare'}"


@pytest.mark.parametrize(
    ("name", "share"), [("right boxed", 0.42), ("right bare", 0.42), ("wrong boxed", 0.16), ("wrong bare", 0.0)]
)
def test_shares_of_the_teacher(name: str, share: float) -> None:
    """4000 draws: 0.42 +- 4 sqrt(0.42 x 0.58 / 4000) = 0.42 +- 0.031, and so on; wrong and bare never."""
    kinds = [kind(answer, 19) for answer in answers(Problem(7, "+", 12), COUNT)]
    bound = 4 * math.sqrt(share * (1 - share) / COUNT)
    assert abs(kinds.count(name) / COUNT - share) <= bound


def test_wrong_answers_slip_by_one_or_ten_equally_often() -> None:
    """About 640 wrong ones, four slips: 160 each, 4 sqrt(640 x 3/16) = 44 apart at most."""
    wrong = [int(found[3]) - 19 for a in answers(Problem(7, "+", 12), COUNT) if (found := ANSWER.fullmatch(a))]
    counts = {slip: wrong.count(slip) for slip in set(wrong) - {0}}
    assert set(counts) == {-10, -1, 1, 10}
    each = sum(counts.values()) / 4
    assert all(abs(count - each) <= 4 * math.sqrt(sum(counts.values()) * 3 / 16) for count in counts.values())


def test_small_sums_never_slip_below_zero() -> None:
    """0 + 4: minus one is 3, minus ten would be -6."""
    values = {int(found[3]) for a in answers(Problem(0, "+", 4), 500) if (found := ANSWER.fullmatch(a))}
    assert values == {3, 4, 5, 14}


def test_shares_are_settings() -> None:
    always = Priming(fraction_right_boxed=1.0, fraction_right_unboxed=0.0)
    assert {kind(answer, 19) for answer in answers(Problem(7, "+", 12), 100, always)} == {"right boxed"}


def test_examples_come_from_the_training_split_only() -> None:
    """Otherwise the policy would have seen held-out sums."""
    tokenizer = build_tokenizer()
    for index in range(200):
        prompt, answer = priming._example(tokenizer, SETTINGS, index)
        question = tokenizer.decode(prompt).removeprefix("<user>").removesuffix("?<assistant>")
        left, right = map(int, question.split("+"))
        assert Problem(left, "+", right).split == "train"
        assert tokenizer.decode(answer).endswith("<eos>")
        assert tokenizer.decode(answer).startswith(f"<think>{question}=")


def test_only_the_answer_is_learnt() -> None:
    """Two examples of 2 + 3 and 1 + 1 tokens: padded on the left, labels on the answers alone."""
    tokenizer = build_tokenizer()
    inputs, attention, labels = priming._collate(tokenizer, [([10, 11], [12, 13, 14]), ([15], [16])])
    pad = tokenizer.pad_token_id
    assert inputs.tolist() == [[10, 11, 12, 13, 14], [pad, pad, pad, 15, 16]]
    assert attention.tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert labels.tolist() == [[-100, -100, 12, 13, 14], [-100, -100, -100, -100, 16]]
    assert inputs.dtype == torch.long


@pytest.mark.parametrize(("step", "rate"), [(0, 1 / 30), (29, 1.0), (30, 1.0), (315, 0.5), (599, 0.0)])
def test_rate_warms_up_over_a_twentieth_and_falls_as_a_cosine(step: int, rate: float) -> None:
    """600 steps: 30 of warm-up; half way through the other 570, at 30 + 285, cos(pi / 2) leaves a half."""
    assert priming._rate(step, 600) == pytest.approx(rate, abs=1e-4)
