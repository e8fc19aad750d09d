"""Form of a reasoning completion: one non-empty `<think>` block, then a non-empty answer."""

from __future__ import annotations

from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.extraction import CLOSING_TAG, OPENING_TAG
from grpo_exp.rewards.score import Score


def score_think_format(completion: Completion, *, prefilled: bool, strict_newlines: bool = False) -> Score:
    """Return 1.0 for exactly one non-empty reasoning block followed by a non-empty answer, else 0.0.

    Tags are exact (`<THINK>` is text). Reasoning in a message's `reasoning_content` counts as a block.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        prefilled: The prompt already ends with the opening tag; repeating it at once is tolerated.
        strict_newlines: The tags stand on lines of their own, as in the template of DeepSeek-R1
            (arXiv:2501.12948). A prefilled opening tag is not the policy's, so what follows it is not judged.
    """
    read = read_completion(completion)
    text = read.text
    if read.reasoning is not None:
        return _score_split(read.reasoning, text)
    if not text.strip():
        return Score(0.0, "empty_completion")
    started = text.lstrip()
    opened = started.startswith(OPENING_TAG)
    if opened:
        text = started[len(OPENING_TAG) :]
    elif not prefilled:
        return Score(0.0, "text_before_reasoning")
    if OPENING_TAG in text or text.count(CLOSING_TAG) > 1:
        return Score(0.0, "repeated_tag")
    reasoning, closing, answer = text.partition(CLOSING_TAG)
    if not closing:
        return Score(0.0, "no_closing_tag")
    score = _score_split(reasoning, answer)
    if score.value and strict_newlines and not _on_own_lines(reasoning, answer, opened=opened):
        return Score(0.0, "missing_newlines")
    return score


def _score_split(reasoning: str, answer: str) -> Score:
    """Judge reasoning and answer once they are apart."""
    if any(tag in part for part in (reasoning, answer) for tag in (OPENING_TAG, CLOSING_TAG)):
        return Score(0.0, "repeated_tag")
    if not reasoning.strip():
        return Score(0.0, "empty_reasoning")
    if not answer.strip():
        return Score(0.0, "no_answer")
    return Score(1.0, "well_formed")


def _on_own_lines(reasoning: str, answer: str, *, opened: bool) -> bool:
    """Tell whether line breaks (LF or CRLF) surround the reasoning."""
    line_breaks = ("\n", "\r\n")
    starts = reasoning.startswith(line_breaks) or not opened
    return starts and reasoning.endswith("\n") and answer.startswith(line_breaks)
