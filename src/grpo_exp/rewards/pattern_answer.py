"""Answers that match a regular expression. It is tried where it can be killed: a pattern may backtrack forever."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from grpo_exp.rewards.answer_sources import read_answer
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.targets import Target, target_texts
from grpo_exp.rewards.worker_pool import shared_pool
from grpo_exp.settings.reward_answers import RegexComponent

MAX_CHARACTERS = 100_000
"""Longest answer that is matched."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """An answer that a checker process must match, with what its group `answer` may be."""

    answer: str
    targets: tuple[str, ...]


def score_pattern(
    settings: RegexComponent,
    completions: Sequence[Completion],
    targets: Sequence[Target],
    *,
    prefilled: Sequence[bool],
) -> list[Score]:
    """Score a batch: 1.0 where the pattern matches and its group `answer`, if it has one, equals the target."""
    results = [
        _read(settings, completion, target, prefilled=opened)
        for completion, target, opened in zip(completions, targets, prefilled, strict=True)
    ]
    pending = list(dict.fromkeys(result for result in results if isinstance(result, _Pending)))
    answers: dict[_Pending, Score] = {}
    if pending:
        with ThreadPoolExecutor(min(len(pending), shared_pool().num_workers)) as threads:
            answers = dict(zip(pending, threads.map(lambda one: _match(settings, one), pending), strict=True))
    return [answers[result] if isinstance(result, _Pending) else result for result in results]


def check_pattern_target(settings: RegexComponent, target: Target) -> Score:
    """Tell whether a target can be compared: any text, where the pattern has a group `answer`."""
    if settings.needs_target and not target_texts(target):
        return Score(None, "no_target")
    return Score(1.0, "match")


def _read(settings: RegexComponent, completion: Completion, target: Target, *, prefilled: bool) -> Score | _Pending:
    of_target = check_pattern_target(settings, target)
    if of_target.value is None:
        return of_target
    answer = read_answer(completion, settings.source, prefilled=prefilled)
    if isinstance(answer, Score):
        return answer
    if len(answer) > MAX_CHARACTERS:
        return Score(0.0, "too_long")
    return _Pending(answer, tuple(target_texts(target)) if settings.needs_target else ())


def _match(settings: RegexComponent, pending: _Pending) -> Score:
    reason = shared_pool().search(settings.pattern, pending.answer, whole=settings.whole, targets=pending.targets)
    return Score(1.0 if reason == "match" else 0.0, reason)
