"""Expressions of Countdown: what pays, and why another does not."""

from __future__ import annotations

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.components import build_components
from grpo_exp.rewards.countdown import MAX_CHARACTERS, judge_expression
from grpo_exp.settings.reward import RewardSettings

NUMBERS, TARGET = [44, 19, 35], 98
#: (expression, value, reason)
CASES = [
    ("44 + 19 + 35", 1.0, "match"),
    ("35 - (-44) + 19", 1.0, "match"),
    ("(44+35)+19", 1.0, "match"),
    ("44 + 19 - 35", 0.0, "mismatch"),
    ("44 + 54", 0.0, "wrong_numbers"),
    ("98", 0.0, "wrong_numbers"),
    ("44 + 19 + 35 + 0", 0.0, "wrong_numbers"),
    ("44 + 19 + 35 * 44 / 44", 0.0, "wrong_numbers"),  # right, and 44 three times
    ("44 + 19 + 35 = 98", 0.0, "not_an_expression"),
    ("44 + 19 +", 0.0, "not_an_expression"),
    ("", 0.0, "not_an_expression"),
    ("44 ** 19 - 35", 0.0, "not_an_expression"),
    ("44 // 19 + 35", 0.0, "not_an_expression"),
    ("44.0 + 19 + 35", 0.0, "not_an_expression"),
    ("4_4 + 19 + 35", 0.0, "not_an_expression"),
    ("0x2c + 19 + 35", 0.0, "not_an_expression"),
    ("44 19 35", 0.0, "not_an_expression"),
    ("exit()", 0.0, "not_an_expression"),
    ("44 / (19 - 19) + 35", 0.0, "division_by_zero"),
    ("(" * 300 + "44" + ")" * 300, 0.0, "too_long"),
    ("-" * (MAX_CHARACTERS - 2) + "44", 0.0, "wrong_numbers"),
    ("(" * 99 + "44" + ")" * 99, 0.0, "wrong_numbers"),
]


@pytest.mark.parametrize(("text", "value", "reason"), CASES)
def test_expression(text: str, value: float, reason: str) -> None:
    score = judge_expression(text, TARGET, NUMBERS)
    assert (score.value, score.reason) == (value, reason)


def test_division_is_exact() -> None:
    """1 / 3 * 3 is 1 and 10 / 4 is 2.5: floats would not always say so."""
    assert judge_expression("1 / 3 * 3", 1, [1, 3, 3]).value == 1.0
    assert judge_expression("10 / 4 * 2", 5, [2, 4, 10]).value == 1.0
    assert judge_expression("3 × 8 ÷ 4 − 1", 5, [3, 8, 4, 1]).value == 1.0  # noqa: RUF001 - as models write them


REWARD = RewardSettings.model_validate(
    {"components": {"correctness": {"kind": "countdown"}, "format": {"kind": "answer_tag", "weight": 0.1}}}
)


def test_component_reads_the_answer_behind_the_reasoning() -> None:
    component = build_components(REWARD)[0]
    completions = [
        "<think>44+19+35</think> <answer>44 + 35 + 19</answer>",
        "<think><answer>44 + 35 + 19</answer></think> none",
        "<think>x</think><answer>1</answer><answer> (44 + 19) + 35 </answer>",
        "<answer>44 + 19 + 35",
    ]
    columns = {"target": [98, "98", 98, 98], "nums": [NUMBERS] * 4}
    assert [(s.value, s.reason) for s in component.score(completions, columns)] == [
        (1.0, "match"),
        (0.0, "no_answer_tag"),
        (1.0, "match"),
        (0.0, "cut_answer_tag"),
    ]


@pytest.mark.parametrize(
    ("target", "numbers", "reason"),
    [(None, NUMBERS, "unparsable_target"), ("9.5", NUMBERS, "unparsable_target"), (98, None, "no_numbers"),
     (98, [], "no_numbers"), (98, [1, None], "no_numbers")],
)  # fmt: skip
def test_task_that_cannot_be_judged_is_none(target: object, numbers: object, reason: str) -> None:
    score = build_components(REWARD)[0].score(["<answer>1</answer>"], {"target": [target], "nums": [numbers]})[0]
    assert (score.value, score.reason) == (None, reason)


def test_missing_column_is_told_with_the_fix() -> None:
    with pytest.raises(ConfigError, match=r"has no column 'nums'.*use dataset=countdown"):
        build_components(REWARD)[0].score(["x"], {"target": [1]})
