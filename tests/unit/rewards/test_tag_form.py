"""Forms with tags."""

from __future__ import annotations

import pytest

from grpo_exp.rewards.score import Score
from grpo_exp.rewards.tag_form import score_answer_tag, score_tag_count

TAGS = ("<think>", "</think>", "<answer>", "</answer>")


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<think>a</think><answer>b</answer>", Score(1.0, "well_formed")),
        ("<think>\na\n</think>\n<answer>\nb\n</answer>\n", Score(1.0, "well_formed")),
        ("<answer>b</answer>", Score(0.0, "text_before_reasoning")),
        ("<think>a</think>b", Score(0.0, "no_answer_tag")),
        ("<think>a</think><answer>b", Score(0.0, "cut_answer_tag")),
        ("<think>a</think><answer> </answer>", Score(0.0, "empty_answer")),
        ("<think>a</think>So: <answer>b</answer>", Score(0.0, "text_around_answer")),
        ("<think>a</think><answer>b</answer> or c", Score(0.0, "text_around_answer")),
        ("<think>a</think></answer>b<answer>", Score(0.0, "text_around_answer")),
        ("<think>a</think><answer>b</answer><answer>c</answer>", Score(0.0, "repeated_tag")),
        ("", Score(0.0, "empty_completion")),
    ],
)
def test_answer_block_behind_the_reasoning(text: str, score: Score) -> None:
    assert score_answer_tag(text, prefilled=False, require_reasoning=True) == score


def test_answer_block_without_reasoning_where_none_is_asked_for() -> None:
    assert score_answer_tag("<answer>b</answer>", prefilled=False, require_reasoning=False).value == 1.0
    text = "<think>a</think><answer>b</answer>"
    assert score_answer_tag(text, prefilled=False, require_reasoning=False) == Score(0.0, "text_around_answer")


def test_answer_block_after_a_reasoning_that_the_prompt_opened() -> None:
    assert score_answer_tag("a</think><answer>b</answer>", prefilled=True, require_reasoning=True).value == 1.0


def test_answer_block_where_the_chat_format_took_the_reasoning_out() -> None:
    message = [{"role": "assistant", "reasoning_content": "a", "content": "<answer>b</answer>"}]
    assert score_answer_tag(message, prefilled=False, require_reasoning=True).value == 1.0


@pytest.mark.parametrize(
    ("text", "prefilled", "score"),
    [
        ("<think>a</think><answer>b</answer>", False, Score(1.0, "well_formed")),
        # 3 of 4 tags appear once
        ("<think>a</think><answer>b", False, Score(0.75, "some_tags")),
        # <think> appears twice, so that 3 of 4 are left
        ("<think><think>a</think><answer>b</answer>", False, Score(0.75, "some_tags")),
        # the prompt's tag counts as the one
        ("a</think><answer>b</answer>", True, Score(1.0, "well_formed")),
        ("<think>a</think><answer>b</answer>", True, Score(1.0, "well_formed")),
        ("a", False, Score(0.0, "no_tags")),
        ("</answer>" * 5, False, Score(0.0, "no_tags")),
        (" ", True, Score(0.0, "empty_completion")),
    ],
)
def test_share_of_tags_that_appear_once(text: str, prefilled: bool, score: Score) -> None:
    assert score_tag_count(text, prefilled=prefilled, tags=TAGS) == score


def test_tags_that_the_chat_format_took_out_count_as_there() -> None:
    message = [{"role": "assistant", "reasoning_content": "a", "content": "<answer>b</answer>"}]
    assert score_tag_count(message, prefilled=False, tags=TAGS).value == 1.0
