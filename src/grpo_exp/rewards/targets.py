r"""Targets (gold answers): prepared once, checked against themselves, remembered."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real

from grpo_exp.errors import DataError
from grpo_exp.rewards.extraction import find_box, match_braces
from grpo_exp.rewards.latex_text import uniform_latex
from grpo_exp.rewards.reading import is_readable, read_shape
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.shapes import Scalar, Shape, expressions_of
from grpo_exp.rewards.worker_pool import shared_pool

Target = str | int | float | Sequence[str | int | float] | None
"""One target: text, a number, or a list of accepted spellings."""

_GSM8K_TAIL = re.compile(r"####\s*(.+?)\s*$")
#: These say as much about the machine at that moment as about the target.
_NO_VERDICTS = {"timeout": "target_timeout", "crash": "target_crash"}
#: How often a target is tried that has got no verdict; each try may cost a time limit.
_MAX_TRIES = 3
_faults: dict[str, list[str]] = defaultdict(list)


@dataclass(frozen=True, slots=True)
class PreparedTarget:
    """An accepted spelling.

    Args:
        text: Its text as a checker process gets it.
        shape: What it says.
    """

    text: str
    shape: Shape


def target_texts(target: Target) -> list[str]:
    """Return the accepted spellings of a target as text, the empty ones left out.

    Raises:
        DataError: The target is neither text, number, list nor null.
    """
    if target is None:
        return []
    if isinstance(target, str):
        return [target] if target.strip() else []
    if isinstance(target, bool):
        return [str(target)]
    if isinstance(target, Integral):  # NumPy's integers included
        return [str(int(target))]
    if isinstance(target, Real):
        # repr() of a small float is '4.18e-06', which is read exactly as it stands.
        return [repr(float(target))] if math.isfinite(target) else []
    if not isinstance(target, Sequence):
        raise DataError(
            f"a target is a {type(target).__name__}; a target is text, a number or a list of these; "
            "convert the column when the data set is prepared"
        )
    return [text for member in target for text in target_texts(member)]


def prepare_targets(target: Target) -> list[PreparedTarget] | Score:
    """Return the spellings of a target that can be judged, or the score (value None) when there are none."""
    texts = target_texts(target)
    if not texts:
        return Score(None, "no_target")
    prepared = [prepare_text(text) for text in texts]
    usable = [spelling for spelling in prepared if isinstance(spelling, PreparedTarget)]
    return usable or next(fault for fault in prepared if isinstance(fault, Score))


class _NoVerdictError(Exception):
    """The checker ran into its time limit or died; the argument is the slug."""


def prepare_text(text: str) -> PreparedTarget | Score:
    """Prepare one spelling; a checker process reads what is not a plain number or a word.

    Verdicts are remembered. A time-out or a crash is none, so such a target is asked again, `_MAX_TRIES` times in all.
    """
    faults = _faults.get(text, [])
    if len(faults) >= _MAX_TRIES:
        return Score(None, faults[-1])
    try:
        return _prepare(text)
    except _NoVerdictError as error:
        _faults[text].append(str(error))
        return Score(None, str(error))


@lru_cache(maxsize=65_536)
def _prepare(text: str) -> PreparedTarget | Score:
    answer = _answer_of(text)
    if not answer.strip():
        return Score(None, "no_target")
    if not is_readable(answer):
        return Score(None, "unparsable_target")
    uniform = uniform_latex(answer)
    if not uniform:
        return Score(None, "no_target")
    shape = read_shape(answer)
    plain = isinstance(shape, Scalar) and shape.number is not None
    if not plain and len(match_braces(uniform)) * 2 != len(re.findall(r"(?<!\\)[{}]", uniform)):
        return Score(None, "unparsable_target")
    if expressions_of(shape):
        reason = shared_pool().ask(answer, None)
        if reason != "match":
            if reason in _NO_VERDICTS:
                raise _NoVerdictError(_NO_VERDICTS[reason])
            return Score(None, "unparsable_target")
    return PreparedTarget(answer, shape)


def _answer_of(text: str) -> str:
    """Return the answer in a target: the last box, what follows GSM8K's `####`, or all of it."""
    boxed = find_box(text)
    if boxed is not None and boxed.strip():
        return boxed
    tail = _GSM8K_TAIL.search(text)
    return tail[1] if tail is not None else text
