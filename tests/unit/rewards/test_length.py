"""Rewards of the length, from the papers' equations by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_exp.errors import ConfigError, DataError
from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.length import score_cosine, score_overlong
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import CosineLengthComponent, OverlongComponent, RewardSettings

from .reward_cases import load_cases

#: Cases about one length; the others are about what the trainer does with the value.
CASES = [case for case in load_cases("overlong.jsonl") if "n_tokens" in case["input"]]


def overlong(limit: int, cache: int) -> OverlongComponent:
    return OverlongComponent(kind="overlong", max_completion_tokens=limit, cache_tokens=cache)


def test_case_file_holds_what_the_next_test_is_about() -> None:
    numbers = [case["id"] for case in CASES if isinstance(case["expected"], float)]
    assert {"j001", "j005", "j007", "j008", "j009", "j010", "j013"} <= set(numbers)


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case["expected"], float)], ids=lambda c: c["id"])
def test_collected_case(case: dict[str, Any]) -> None:
    given = case["input"]
    score = score_overlong(given["n_tokens"], overlong(given["max_completion_len"], given["cache"]))
    assert score.value == pytest.approx(case["expected"], abs=1e-12), case["note"]


@pytest.mark.parametrize(
    ("num_tokens", "score"),
    [
        (80, Score(0.0, "within_limit")),  # L - C
        (81, Score(-0.05, "near_limit")),  # (80 - 81) / 20
        (90, Score(-0.5, "near_limit")),
        (100, Score(-1.0, "near_limit")),  # (80 - 100) / 20
        (101, Score(-1.0, "over_limit")),
    ],
)
def test_punishment_is_linear_over_the_cache(num_tokens: int, score: Score) -> None:
    assert score_overlong(num_tokens, overlong(100, 20)) == score


def test_limit_of_zero_and_cache_above_the_limit_are_refused() -> None:
    with pytest.raises(ValidationError, match="max_completion_tokens"):
        overlong(0, 0)
    with pytest.raises(ValidationError, match="cache_tokens: 101 is above max_completion_tokens=100"):
        overlong(100, 101)


# ------------------------------------------------------------------------------------------ cosine

COSINE = CosineLengthComponent(kind="cosine_length", max_completion_tokens=100)
RIGHT, WRONG = Score(1.0, "match"), Score(0.0, "mismatch")


@pytest.mark.parametrize(
    ("judged", "num_tokens", "value"),
    [
        (RIGHT, 0, 1.0),  # cos 0 = 1: the short end
        (RIGHT, 50, 0.75),  # cos(pi / 2) = 0: halfway between 1 and 0.5
        (RIGHT, 99, 0.5 + 0.25 * (1 + math.cos(0.99 * math.pi))),
        (RIGHT, 100, -1.0),  # the paper: at the limit, right or wrong
        (WRONG, 0, -1.0),
        (WRONG, 50, -0.75),
        (WRONG, 25, -0.5 - 0.25 * (1 + math.sqrt(0.5))),  # cos(pi / 4) = sqrt(1/2)
        (WRONG, 100, -1.0),
    ],
)
def test_cosine_of_the_length(judged: Score, num_tokens: int, value: float) -> None:
    assert score_cosine(judged, num_tokens, COSINE).value == pytest.approx(value, abs=1e-12)


def test_right_answers_fall_with_length_and_wrong_ones_rise() -> None:
    right = [score_cosine(RIGHT, n, COSINE).value or 0.0 for n in range(100)]
    wrong = [score_cosine(WRONG, n, COSINE).value or 0.0 for n in range(100)]
    assert right == sorted(right, reverse=True)
    assert wrong == sorted(wrong)
    assert min(right) > max(wrong)


def test_what_cannot_be_judged_has_no_cosine() -> None:
    assert score_cosine(Score(None, "no_target"), 5, COSINE) == Score(None, "no_target")


def test_partly_right_is_not_right() -> None:
    assert score_cosine(Score(0.5, "some_tags"), 0, COSINE).reason == "wrong"


def test_right_answer_must_be_worth_more_than_a_wrong_one() -> None:
    with pytest.raises(ValidationError, match="a right answer must be worth more than a wrong one"):
        CosineLengthComponent(kind="cosine_length", max_completion_tokens=9, right_long=-0.5)


# ------------------------------------------------------------------------------------------ in a reward


def build(**components: Any) -> list[RewardComponent]:
    fields = {"correctness": {"kind": "math", "weight": 0.0}, **components}
    return build_components(RewardSettings.model_validate({"components": fields}))


def test_cosine_asks_the_component_that_judges() -> None:
    _, cosine = build(length={"kind": "cosine_length", "max_completion_tokens": 4})
    completions = [r"\boxed{7}", r"\boxed{8}", r"\boxed{7}"]
    scores = cosine.score(completions, {"target": ["7", "7", None], "completion_ids": [[5, 5], [], [1]]})
    # 2 of 4 tokens and right: halfway between 1 and 0.5; no token and wrong: -1
    assert [score.value for score in scores] == [pytest.approx(0.75), -1.0, None]


def test_overlong_counts_tokens_not_characters() -> None:
    _, component = build(overlong={"kind": "overlong", "max_completion_tokens": 4, "cache_tokens": 2})
    text = "long words everywhere"
    (score,) = component.score([text], {"completion_ids": [[1, 2, 3]]})
    assert score.value == -0.5  # (4 - 2 - 3) / 2
    (score,) = component.score([text], {"num_tokens": [4]})
    assert score.value == -1.0


def test_missing_or_wrong_token_counts_are_told() -> None:
    _, component = build(overlong={"kind": "overlong", "max_completion_tokens": 4, "cache_tokens": 2})
    with pytest.raises(ConfigError, match=r"overlong: there is no column 'completion_ids' or 'num_tokens'.*add num_"):
        component.score(["a"], {"target": ["1"]})
    for wrong in (None, -1, 2.5, True, "3"):
        with pytest.raises(DataError, match="'num_tokens' holds"):
            component.score(["a"], {"num_tokens": [wrong]})
