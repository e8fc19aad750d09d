r"""Where an answer may stand, besides the box: GSM8K's `####`, an `<answer>` block, the last line.

All of them look behind the reasoning only, take the last candidate, and are linear in the length of the text.
"""

from __future__ import annotations

from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.extraction import Extraction, after_reasoning, extract_box
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_answers import AnswerSource

OPENING_ANSWER = "<answer>"
CLOSING_ANSWER = "</answer>"
_MARKER = "####"


def extract_gsm8k(text: str, *, reasoning_open: bool = False) -> Extraction:
    """Return what follows the last `####`, to the end of its line.

    Args:
        text: The completion.
        reasoning_open: The prompt ended with the opening tag, so that the text starts inside the reasoning.
    """
    tail = after_reasoning(text, reasoning_open=reasoning_open)
    if tail is None:
        return Extraction(None, "unclosed_reasoning")
    _, marker, rest = tail.rpartition(_MARKER)
    if not marker:
        return Extraction(None, "no_marker")
    return _not_empty(rest.partition("\n")[0])


def extract_answer(text: str, source: AnswerSource, *, reasoning_open: bool = False) -> Extraction:
    """Return the answer from the place that the settings name.

    Args:
        text: The completion.
        source: The place.
        reasoning_open: As for `extract_gsm8k`.
    """
    if source == "box":
        return extract_box(text, reasoning_open=reasoning_open)
    tail = after_reasoning(text, reasoning_open=reasoning_open)
    if tail is None:
        return Extraction(None, "unclosed_reasoning")
    if source == "last_line":
        return _not_empty(tail.rstrip().rpartition("\n")[2])
    if source == "after_reasoning":
        return _not_empty(tail)
    _, opening, rest = tail.rpartition(OPENING_ANSWER)
    if not opening:
        return Extraction(None, "no_answer_tag")
    content, closing, _ = rest.partition(CLOSING_ANSWER)
    return _not_empty(content) if closing else Extraction(None, "cut_answer_tag")


def read_answer(completion: Completion, source: AnswerSource, *, prefilled: bool) -> str | Score:
    """Return the text of the answer, never empty, or the score of a completion that has none.

    Args:
        completion: Text, or messages of which the last assistant turn is read.
        source: Where the answer stands.
        prefilled: The prompt ended with the opening tag of the reasoning.
    """
    read = read_completion(completion)
    if not read.text.strip():
        return Score(0.0, "empty_completion")
    found = extract_answer(read.text, source, reasoning_open=prefilled and read.reasoning is None)
    return Score(0.0, found.reason) if found.content is None else found.content


def _not_empty(text: str) -> Extraction:
    content = text.strip()
    return Extraction(content) if content else Extraction(None, "empty_answer")
