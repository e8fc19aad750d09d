"""Forms with tags: an `<answer>` block behind the reasoning, and the bare presence of tags."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.rewards.answer_sources import CLOSING_ANSWER, OPENING_ANSWER
from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.extraction import CLOSING_TAG, OPENING_TAG
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.think_format import score_think_format


def score_answer_tag(completion: Completion, *, prefilled: bool, require_reasoning: bool) -> Score:
    """Return 1.0 for one non-empty `<answer>` block with only blanks round it, behind well-formed reasoning.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        prefilled: The prompt already ends with the opening tag of the reasoning.
        require_reasoning: Ask for the reasoning; false judges all of the text.
    """
    read = read_completion(completion)
    text = read.text
    if require_reasoning:
        score = score_think_format(completion, prefilled=prefilled)
        if not score.value:
            return score
        if read.reasoning is None:
            text = text.rpartition(CLOSING_TAG)[2]
    if not text.strip():
        return Score(0.0, "empty_completion")
    return _score_block(text.strip())


def _score_block(text: str) -> Score:
    counts = text.count(OPENING_ANSWER), text.count(CLOSING_ANSWER)
    if max(counts) > 1:
        return Score(0.0, "repeated_tag")
    if min(counts) == 0:
        return Score(0.0, "cut_answer_tag" if counts[0] else "no_answer_tag")
    if not (text.startswith(OPENING_ANSWER) and text.endswith(CLOSING_ANSWER)):
        return Score(0.0, "text_around_answer")
    if not text[len(OPENING_ANSWER) : -len(CLOSING_ANSWER)].strip():
        return Score(0.0, "empty_answer")
    return Score(1.0, "well_formed")


def score_tag_count(completion: Completion, *, prefilled: bool, tags: Sequence[str]) -> Score:
    """Return the share of the tags that appear exactly once, 0 to 1.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        prefilled: The prompt already ends with the opening tag of the reasoning, which counts as one.
        tags: Different texts, at least one.
    """
    read = read_completion(completion)
    text = read.text
    if read.reasoning is not None:  # the chat format took the tags out
        text = f"{OPENING_TAG}{read.reasoning}{CLOSING_TAG}{text}"
    elif prefilled:
        # Repeating the prompt's tag at once is tolerated, as in `think_format`.
        text = OPENING_TAG + text.lstrip().removeprefix(OPENING_TAG)
    if not read.text.strip() and not read.reasoning:
        return Score(0.0, "empty_completion")
    found = sum(text.count(tag) == 1 for tag in tags)
    reason = "well_formed" if found == len(tags) else "some_tags" if found else "no_tags"
    return Score(found / len(tags), reason)
