"""Form of a reasoning completion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from grpo_exp.rewards.score import Score
from grpo_exp.rewards.think_format import score_think_format

from .reward_cases import load_cases


@pytest.mark.parametrize("case", load_cases("think_format.jsonl"), ids=lambda case: case["id"])
def test_collected_case(case: dict[str, Any]) -> None:
    started = time.thread_time()
    score = score_think_format(case["completion"], prefilled=case["prefilled"])
    assert time.thread_time() - started < case.get("max_seconds", 1)
    assert score.value == case["expected"], (score, case["note"])


@pytest.mark.parametrize(
    ("completion", "prefilled", "strict", "score"),
    [
        ("<think>half</think>7", False, True, Score(0.0, "missing_newlines")),
        ("<think>\nhalf\n</think>7", False, True, Score(0.0, "missing_newlines")),
        ("<think>\nhalf\n</think>\n7", False, True, Score(1.0, "well_formed")),
        ("<think>\r\nhalf\r\n</think>\r\n7", False, True, Score(1.0, "well_formed")),
        ("half\n</think>\n7", True, True, Score(1.0, "well_formed")),
        ("half</think>7", False, False, Score(0.0, "text_before_reasoning")),
        ("so <think>half</think>7", False, False, Score(0.0, "text_before_reasoning")),
        ("<think>half", False, False, Score(0.0, "no_closing_tag")),
        ("half", True, False, Score(0.0, "no_closing_tag")),
        ("a</think>b</think>c", True, False, Score(0.0, "repeated_tag")),
        ("<think>a</think>b<think>", False, False, Score(0.0, "repeated_tag")),
        ("", True, False, Score(0.0, "empty_completion")),
        ("</think>7", True, False, Score(0.0, "empty_reasoning")),
        (
            [{"role": "assistant", "content": " ", "reasoning_content": "half"}],
            False,
            False,
            Score(0.0, "no_answer"),
        ),
    ],
)
def test_reason(completion: Any, prefilled: bool, strict: bool, score: Score) -> None:
    assert score_think_format(completion, prefilled=prefilled, strict_newlines=strict) == score
