r"""Answers that need no mathematics: a letter, a text, a number within a distance."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from grpo_exp.rewards.answer_sources import read_answer
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.reading import is_readable, read_shape
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.shapes import Scalar
from grpo_exp.rewards.targets import Target, target_texts
from grpo_exp.settings.reward_answers import AnswerSource, ExactComponent, NumericComponent

Judge = Callable[[str, Target], Score]
"""Compares the text of an answer with a target; value None where the target cannot be judged."""

_MAX_LETTER_CHARACTERS = 200
_LETTER = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+|final\s+)?answer(?:\s+is)?\s*:?\s*)?"
    r"[\s*_$]*(?:\\(?:text|textbf|textit|mathrm|mathbf|boxed)\s*\{)?\s*[(\[]?\s*([A-Z])\s*[)\].:}*_$\s]*",
    re.IGNORECASE,
)


def score_answers(
    completions: Sequence[Completion],
    targets: Sequence[Target],
    prefilled: Sequence[bool],
    *,
    source: AnswerSource,
    judge: Judge,
) -> list[Score]:
    """Extract each answer and judge it.

    Args:
        completions: Texts or lists of messages.
        targets: The right answer of each.
        prefilled: Whether its prompt ended with the opening tag of the reasoning.
        source: Where the answer stands.
        judge: Compares answer and target.
    """
    return [
        _score_answer(read_answer(completion, source, prefilled=opened), target, judge)
        for completion, target, opened in zip(completions, targets, prefilled, strict=True)
    ]


def _score_answer(answer: str | Score, target: Target, judge: Judge) -> Score:
    """Judge an answer; where there is none, the target must still be one that can be judged."""
    if isinstance(answer, str):
        return judge(answer, target)
    of_target = judge("", target)
    return of_target if of_target.value is None else answer


def check_plain_target(target: Target, judge: Judge) -> Score:
    """Compare a target with itself: value 1.0 if it can be judged, else None with the reason."""
    texts = target_texts(target)
    return judge(texts[0], target) if texts else Score(None, "no_target")


# --------------------------------------------------------------------------------------- a letter


def judge_letter(answer: str, target: Target) -> Score:
    """Compare two letters without regard to case; anything else (two letters, the option's text) does not pay."""
    wanted = {read_letter(text) for text in target_texts(target)}
    if not wanted:
        return Score(None, "no_target")
    if None in wanted:
        return Score(None, "unparsable_target")
    letter = read_letter(answer)
    if letter is None:
        return Score(0.0, "not_a_letter")
    return Score(1.0, "match") if letter in wanted else Score(0.0, "mismatch")


def read_letter(text: str) -> str | None:
    """Return the capital of the one letter that a text consists of, or None."""
    if len(text) > _MAX_LETTER_CHARACTERS:
        return None
    found = _LETTER.fullmatch(text.strip())
    return found[1].upper() if found is not None else None


# --------------------------------------------------------------------------------------- a text


def judge_exactly(settings: ExactComponent) -> Judge:
    """Return a judge that compares texts."""

    def uniform(text: str) -> str:
        text = " ".join(text.split()) if settings.collapse_blanks else text.strip()
        return text.casefold() if settings.ignore_case else text

    def judge(answer: str, target: Target) -> Score:
        wanted = {uniform(text) for text in target_texts(target)}
        if not wanted:
            return Score(None, "no_target")
        return Score(1.0, "match") if uniform(answer) in wanted else Score(0.0, "mismatch")

    return judge


# --------------------------------------------------------------------------------------- a number


def judge_numerically(settings: NumericComponent) -> Judge:
    """Return a judge that compares numbers within the tolerances, which are taken as written: 0.1 is one tenth."""
    absolute = Fraction(repr(settings.absolute_tolerance))
    relative = Fraction(repr(settings.relative_tolerance))

    def judge(answer: str, target: Target) -> Score:
        wanted = [_read_number(text) for text in target_texts(target)]
        if not wanted:
            return Score(None, "no_target")
        numbers = [number for number in wanted if number is not None]
        if len(numbers) < len(wanted):
            return Score(None, "unparsable_target")
        number = _read_number(answer)
        if number is None:
            return Score(0.0, "not_a_number")
        value, unit = number
        if all(unit is not None and other is not None and unit != other for _, other in numbers):
            return Score(0.0, "wrong_unit")
        near = any(
            abs(value - gold) <= max(absolute, relative * abs(gold))
            for gold, other in numbers
            if unit is None or other is None or unit == other
        )
        return Score(1.0, "match") if near else Score(0.0, "mismatch")

    return judge


def _read_number(text: str) -> tuple[Fraction, str | None] | None:
    """Return the exact value and the unit of a plain number, or None."""
    if not is_readable(text):
        return None
    shape = read_shape(text)
    if not isinstance(shape, Scalar) or shape.number is None:
        return None
    return shape.number.value, shape.unit
