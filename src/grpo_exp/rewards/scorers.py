"""From the settings of a component to what scores a batch: the one table of kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from grpo_exp.rewards.answer_sources import extract_gsm8k
from grpo_exp.rewards.code.scorer import build_code_scorer
from grpo_exp.rewards.columns import BatchScorer, Columns, read_prefilled, read_targets, read_token_counts
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.countdown import score_countdown
from grpo_exp.rewards.extraction import extract_box
from grpo_exp.rewards.gym_answer import score_gym
from grpo_exp.rewards.length import score_cosine, score_overlong
from grpo_exp.rewards.math_answer import Extractor, score_math_batch
from grpo_exp.rewards.pattern_answer import score_pattern
from grpo_exp.rewards.plain_answers import Judge, judge_exactly, judge_letter, judge_numerically, score_answers
from grpo_exp.rewards.python_function import PythonScorer
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.tag_form import score_answer_tag, score_tag_count
from grpo_exp.rewards.text_form import score_language, score_repetition, score_text_quality
from grpo_exp.rewards.think_format import score_think_format
from grpo_exp.settings.reward import (
    AnswerTagComponent,
    CodeComponent,
    CosineLengthComponent,
    CountdownComponent,
    ExactComponent,
    Gsm8kComponent,
    LanguageComponent,
    LetterComponent,
    MathComponent,
    NumericComponent,
    OverlongComponent,
    PythonComponent,
    ReasoningGymComponent,
    RegexComponent,
    RepetitionComponent,
    TagCountComponent,
    TextQualityComponent,
    ThinkFormatComponent,
)
from grpo_exp.settings.reward_answers import AnswerSource


class LastBatch:
    """A scorer that remembers its last batch, so that two who ask for the same one make it work once.

    A batch is the same when completions and columns are the same objects.

    Args:
        scorer: Does the work.
    """

    def __init__(self, scorer: BatchScorer) -> None:
        self._scorer = scorer
        self._lock = threading.Lock()
        self._batch: tuple[Sequence[Completion], dict[str, Sequence[Any]]] | None = None
        self._scores: list[Score] = []

    def __call__(self, name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        """Score, or return what was scored."""
        with self._lock:
            if not self._is_last(completions, columns):
                self._batch = None
                self._scores = self._scorer(name, completions, columns)
                self._batch = completions, dict(columns)
            return list(self._scores)

    def _is_last(self, completions: Sequence[Completion], columns: Columns) -> bool:
        if self._batch is None or self._batch[0] is not completions:
            return False
        known = self._batch[1]
        return known.keys() == columns.keys() and all(columns[name] is known[name] for name in known)


def _by_math(kind: str, extract: Extractor) -> BatchScorer:
    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        targets, prefilled = read_targets(name, kind, columns), read_prefilled(completions, columns)
        return score_math_batch(completions, targets, prefilled=prefilled, extract=extract)

    return score


def _by_judge(kind: str, source: AnswerSource, judge: Judge) -> BatchScorer:
    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        targets, prefilled = read_targets(name, kind, columns), read_prefilled(completions, columns)
        return score_answers(completions, targets, prefilled, source=source, judge=judge)

    return score


def _by_pattern(settings: RegexComponent) -> BatchScorer:
    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        none = [None] * len(completions)
        targets = read_targets(name, settings.kind, columns) if settings.needs_target else none
        return score_pattern(settings, completions, targets, prefilled=read_prefilled(completions, columns))

    return score


def _by_form(score_one: Callable[[Completion, bool], Score]) -> BatchScorer:
    """Return a scorer that looks at each completion alone, and at whether its reasoning was opened by the prompt."""

    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        return [
            score_one(completion, prefilled)
            for completion, prefilled in zip(completions, read_prefilled(completions, columns), strict=True)
        ]

    return score


def _by_length(settings: OverlongComponent) -> BatchScorer:
    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        return [score_overlong(count, settings) for count in read_token_counts(name, settings.kind, columns)]

    return score


def build_cosine_scorer(settings: CosineLengthComponent, judge: BatchScorer) -> BatchScorer:
    """Return a scorer of lengths that asks another one what is right."""

    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        counts = read_token_counts(name, settings.kind, columns)
        judged = judge(settings.judged_by, completions, columns)
        return [score_cosine(one, count, settings) for one, count in zip(judged, counts, strict=True)]

    return score


#: Kind of component -> what builds its scorer. `cosine_length` stands apart: it needs the scorer of another component.
SCORERS: dict[type, Callable[[Any], BatchScorer]] = {
    MathComponent: lambda c: _by_math(c.kind, extract_box),
    Gsm8kComponent: lambda c: _by_math(c.kind, extract_gsm8k),
    LetterComponent: lambda c: _by_judge(c.kind, c.source, judge_letter),
    ExactComponent: lambda c: _by_judge(c.kind, c.source, judge_exactly(c)),
    NumericComponent: lambda c: _by_judge(c.kind, c.source, judge_numerically(c)),
    RegexComponent: _by_pattern,
    CountdownComponent: lambda c: partial(score_countdown, c),
    ReasoningGymComponent: lambda c: partial(score_gym, c),
    ThinkFormatComponent: lambda c: _by_form(
        lambda text, prefilled: score_think_format(text, prefilled=prefilled, strict_newlines=c.strict_newlines)
    ),
    AnswerTagComponent: lambda c: _by_form(
        lambda text, prefilled: score_answer_tag(text, prefilled=prefilled, require_reasoning=c.require_reasoning)
    ),
    TagCountComponent: lambda c: _by_form(
        lambda text, prefilled: score_tag_count(text, prefilled=prefilled, tags=c.tags)
    ),
    OverlongComponent: _by_length,
    RepetitionComponent: lambda c: _by_form(lambda text, prefilled: score_repetition(text, ngram_size=c.ngram_size)),
    LanguageComponent: lambda c: _by_form(lambda text, prefilled: score_language(text, c, prefilled=prefilled)),
    TextQualityComponent: lambda c: _by_form(lambda text, prefilled: score_text_quality(text, c, prefilled=prefilled)),
    CodeComponent: build_code_scorer,
    PythonComponent: lambda c: PythonScorer(c.function, c.timeout_seconds),
}
