r"""Correctness of a mathematical answer.

The policy in short: the last box after the reasoning is the answer. Sets and lists are unordered, tuples and
intervals are not. Two terminating decimals compare exactly; a decimal stands for an irrational or repeating
value within a relative 1e-6. `35`, `35\%` and `0.35` are right for `35\%`. A missing unit is forgiven,
another is not. Single letters are variables. Where the target is a plain number, fractions, powers, roots,
factorials and binomials pay, unevaluated sums and products do not. A chain of equalities must be true.

Plain numbers, words and wrong shapes are settled here; only expressions go to a checker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from grpo_exp.rewards.comparison import MATCH, compare
from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.extraction import Extraction, extract_box
from grpo_exp.rewards.latex_text import uniform_latex
from grpo_exp.rewards.reading import is_readable, read_shape
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.shapes import Relation
from grpo_exp.rewards.targets import PreparedTarget, Target, prepare_targets
from grpo_exp.rewards.worker_pool import shared_pool

_UNSURE = "unsure"


class Extractor(Protocol):
    """Finds the answer in a completion."""

    def __call__(self, text: str, *, reasoning_open: bool) -> Extraction:
        """Return the answer, or why there is none; see `extraction.extract_box`."""
        ...


class _UnsureJudge:
    """The `Judge` of this process: it computes nothing and says so."""

    def equal(self, gold: str, answer: str, *, decimal: bool) -> str:
        """Leave the question to a checker process."""
        raise _NeedsCheckerError

    def same_relation(self, gold: Relation, answer: Relation) -> str:
        """Leave the question to a checker process."""
        raise _NeedsCheckerError


class _NeedsCheckerError(Exception):
    """Text and numbers do not settle a comparison."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """An answer that a checker process must compare, with the spellings it may equal."""

    answer: str
    golds: tuple[str, ...]


def score_math(completion: Completion, target: Target, *, prefilled: bool = False) -> Score:
    """Score one completion: 1.0 if its answer is the target, else 0.0; None if the target cannot be judged.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        target: The right answer: text, a number, or a list of accepted spellings.
        prefilled: The prompt ended with the opening tag of the reasoning.
    """
    first = _score_cheaply(completion, target, prefilled=prefilled, extract=extract_box)
    return _ask(first) if isinstance(first, _Pending) else first


def score_math_batch(
    completions: Sequence[Completion],
    targets: Sequence[Target],
    *,
    prefilled: Sequence[bool],
    extract: Extractor = extract_box,
) -> list[Score]:
    """Score a batch as `score_math` does, with all checkers at work and equal questions asked once.

    Args:
        completions: Texts or lists of messages.
        targets: The right answer of each.
        prefilled: Whether its prompt ended with the opening tag of the reasoning.
        extract: Finds the answer in a completion.
    """
    results = [
        _score_cheaply(completion, target, prefilled=opened, extract=extract)
        for completion, target, opened in zip(completions, targets, prefilled, strict=True)
    ]
    pending = list(dict.fromkeys(result for result in results if isinstance(result, _Pending)))
    if pending:
        with ThreadPoolExecutor(min(len(pending), shared_pool().num_workers)) as threads:
            answered = dict(zip(pending, threads.map(_ask, pending), strict=True))
        results = [answered[result] if isinstance(result, _Pending) else result for result in results]
    return [result for result in results if isinstance(result, Score)]


def check_target(target: Target) -> Score:
    """Compare a target with itself: value 1.0 if it can be judged, else None with the reason."""
    prepared = prepare_targets(target)
    return prepared if isinstance(prepared, Score) else Score(1.0, MATCH)


def _score_cheaply(completion: Completion, target: Target, *, prefilled: bool, extract: Extractor) -> Score | _Pending:
    """Score without a checker process, or return what one must be asked."""
    prepared = prepare_targets(target)
    if isinstance(prepared, Score):
        return prepared
    read = read_completion(completion)
    if not read.text.strip():
        return Score(0.0, "empty_completion")
    found = extract(read.text, reasoning_open=prefilled and read.reasoning is None)
    if found.content is None:
        return Score(0.0, found.reason)
    if not is_readable(found.content):
        return Score(0.0, "too_long")
    return _compare_with_all(found.content, prepared)


def _compare_with_all(answer: str, golds: Sequence[PreparedTarget]) -> Score | _Pending:
    """Compare an answer with every accepted spelling; one match is enough."""
    uniform = uniform_latex(answer)
    if not uniform:
        return Score(0.0, "empty_box")
    shape = read_shape(answer)
    judge = _UnsureJudge()
    reasons: list[str] = []
    for gold in golds:
        try:
            same_text = uniform == uniform_latex(gold.text)
            reasons.append(MATCH if same_text else compare(gold.shape, shape, judge))
        except _NeedsCheckerError:
            reasons.append(_UNSURE)
    if MATCH in reasons:
        return Score(1.0, MATCH)
    unsure = tuple(gold.text for gold, reason in zip(golds, reasons, strict=True) if reason == _UNSURE)
    return _Pending(answer, unsure) if unsure else Score(0.0, reasons[0])


def _ask(pending: _Pending) -> Score:
    """Ask a checker process about every spelling until one matches."""
    reason = ""
    for gold in pending.golds:
        reason = shared_pool().ask(gold, pending.answer)
        if reason == MATCH:
            return Score(1.0, MATCH)
    if reason == "unparsable_target":
        return Score(None, reason)
    return Score(0.0, reason)
