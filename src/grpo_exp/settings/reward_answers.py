"""Components that compare an answer with the target."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Literal

from pydantic import Field, field_validator

from grpo_exp.settings.base import Float, Text
from grpo_exp.settings.reward_schedule import ComponentSettings

AnswerSource = Literal["box", "answer_tag", "last_line", "after_reasoning"]


class MathComponent(ComponentSettings):
    r"""Correctness of the last `\boxed{}` after the last `</think>`."""

    kind: Literal["math"]


class Gsm8kComponent(ComponentSettings):
    """Correctness of what follows the last `####` after the reasoning, by the rules of `math`.

    The form of GSM8K's own solutions (arXiv:2110.14168).
    """

    kind: Literal["gsm8k"]


class _ExtractedAnswer(ComponentSettings):
    """A component that takes the answer from a place of the user's choice."""

    source: AnswerSource = "box"
    r"""Where the answer stands, always after the reasoning: the last `\boxed{}`, the last `<answer>` block, the last
    line, or all of the text."""


class LetterComponent(_ExtractedAnswer):
    """Multiple choice: the answer is one letter, bare or as `(B)`, `B.`, `Answer: B`."""

    kind: Literal["letter"]


class ExactComponent(_ExtractedAnswer):
    """The answer is the target, character by character; blanks at the ends do not count."""

    kind: Literal["exact"]
    ignore_case: bool = False
    """Take `Paris` for `paris`."""
    collapse_blanks: bool = True
    """Take any run of blanks and line breaks for one blank."""


class RegexComponent(_ExtractedAnswer):
    """The answer matches a pattern; a group named `answer` must also equal the target."""

    kind: Literal["regex"]
    pattern: Text
    """Regular expression of Python's `re`. With a group `(?P<answer>…)` its text, blanks trimmed, is compared with the
    target; without one no target is needed."""
    whole: bool = True
    """The pattern must cover the whole answer; false looks for it anywhere (easier to please by accident)."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # `[[`, which a later Python reads in another way
                re.compile(value)
        except (re.error, OverflowError, RecursionError, FutureWarning) as error:
            raise ValueError(
                f"is no regular expression that can be used ({error}); correct it, or put a backslash before special "
                "signs"
            ) from error
        return value

    @property
    def needs_target(self) -> bool:
        """Whether the pattern has a group that is compared with the target."""
        return "answer" in re.compile(self.pattern).groupindex


class NumericComponent(_ExtractedAnswer):
    """The answer is a number near the target: |answer - target| <= max(absolute, relative x |target|)."""

    kind: Literal["numeric"]
    absolute_tolerance: Annotated[Float, Field(ge=0, le=1e12)] = 0.0
    """Largest distance that pays, in the unit of the target; 0 and up."""
    relative_tolerance: Annotated[Float, Field(ge=0, le=1)] = 0.0
    """Largest distance that pays, as a share of the target; 0 and up. 0.01 is one percent."""


class CountdownComponent(_ExtractedAnswer):
    """The answer is an expression in the numbers of the column `nums`, each used exactly once, of the value `target`.

    Integers, + - * /, signs and parentheses, computed exactly. Nothing may stand beside it, no equals sign either.
    """

    kind: Literal["countdown"]
    source: AnswerSource = "answer_tag"
    r"""Where the expression stands, always after the reasoning: the last `<answer>` block, the last `\boxed{}`, the
    last line, or all of the text."""


class ReasoningGymComponent(_ExtractedAnswer):
    """The answer is judged by the task's own scorer in the package reasoning_gym, in a process that can be killed.

    The column `entry` holds the task, as `dataset=reasoning_gym` makes it.
    """

    kind: Literal["reasoning_gym"]
    source: AnswerSource = "answer_tag"
    r"""Where the answer stands, always after the reasoning: the last `<answer>` block, the last `\boxed{}`, the last
    line, or all of the text."""
