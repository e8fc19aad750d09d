r"""Compare two shapes. Only two questions need a computer algebra system; a `Judge` answers them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from grpo_exp.rewards.expressions import has_variable, is_finished_number, unfinished_operators
from grpo_exp.rewards.literal_number import LiteralNumber, numbers_agree
from grpo_exp.rewards.shapes import Chain, Group, Matrix, Relation, Scalar, Shape, Words

MATCH = "match"
MISMATCH = "mismatch"

_BLANKS = re.compile(r"(?<!\\)(\\[a-zA-Z]+) (?=[a-zA-Z])|(?<=[\d.])(\s)\s*(?=[\d.])|\s")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_SCRIPT_TEXT = re.compile(r"(?<=[\^_])\s*\\text\{([^{}]*)\}")
_ONLY_WORDS = re.compile(r"(?:[^\W\d_]|[\s.,;:?'\"()&-])*")


class Judge(Protocol):
    """Decides what the text of two expressions does not show."""

    def equal(self, gold: str, answer: str, *, decimal: bool) -> str:
        """Compare two expressions.

        Args:
            gold: LaTeX of one value.
            answer: LaTeX of the other.
            decimal: One of the two is a decimal, which may stand for an irrational or repeating value.

        Returns:
            `match`, `mismatch`, `unparsable` or `unparsable_target`.
        """
        ...

    def same_relation(self, gold: Relation, answer: Relation) -> str:
        """Tell whether two equations or inequalities say the same; returns as `equal` does."""
        ...


def compare(gold: Shape, answer: Shape, judge: Judge) -> str:
    """Return `match`, or the slug of why the answer is not the gold."""
    if isinstance(gold, Chain):
        return compare(replace(gold.members[-1], label=gold.label or gold.members[-1].label), answer, judge)
    if isinstance(answer, Chain):
        return _compare_chain(gold, answer, judge)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _compare_relations(gold, answer, judge)
    if _labels_clash(gold, answer):
        return _compare_definitions(gold, answer, judge)
    gold, answer = _alone(gold), _alone(answer)
    if isinstance(gold, Words) or isinstance(answer, Words):
        first, second = _plain_words(gold), _plain_words(answer)
        return MATCH if first is not None and first == second else MISMATCH
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
            return MISMATCH
        return _compare_in_order(sum(gold.rows, ()), sum(answer.rows, ()), judge)
    if isinstance(gold, Group) and isinstance(answer, Group):
        return _compare_groups(gold, answer, judge)
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        return compare_scalars(gold, answer, judge)
    return MISMATCH


def compare_scalars(gold: Scalar, answer: Scalar, judge: Judge, *, finished: bool = True) -> str:
    """Compare two values.

    Args:
        gold: The value that is right.
        answer: The value that is judged.
        judge: Asked when neither text nor numbers settle it.
        finished: Where gold is a plain number, refuse an answer that leaves a sum or product to work out.
    """
    if gold.unit is not None and answer.unit is not None and gold.unit != answer.unit:
        return "wrong_unit"
    if gold.base is not None and answer.base is not None and gold.base != answer.base:
        return "wrong_unit"
    plain = gold.base is None and answer.base is None and gold.number is not None and answer.number is not None
    if not plain and _squeezed(gold.text) == _squeezed(answer.text):
        return MATCH
    if gold.base is not None or answer.base is not None:
        return MATCH if _squeezed(gold.text).lstrip("0") == _squeezed(answer.text).lstrip("0") else MISMATCH
    reasons = [
        _compare_values(first, second, judge, finished=finished) for first, second in _percent_readings(gold, answer)
    ]
    return MATCH if MATCH in reasons else reasons[0]


def _percent_readings(gold: Scalar, answer: Scalar) -> list[tuple[Scalar, Scalar]]:
    """Return what a percentage may be compared with: `35` and `0.35` are both right for `35%`."""
    if gold.unit == answer.unit or "%" not in {gold.unit, answer.unit}:
        return [(gold, answer)]
    if gold.unit == "%":
        return [(gold, answer), (_hundredth(gold), answer)]
    return [(gold, answer), (gold, _hundredth(answer))]


def _hundredth(scalar: Scalar) -> Scalar:
    number = scalar.number
    if number is not None:
        number = LiteralNumber(number.value * Fraction(1, 100), is_decimal=number.is_decimal)
    return replace(scalar, text=rf"\frac{{{scalar.text}}}{{100}}", number=number)


def _compare_values(gold: Scalar, answer: Scalar, judge: Judge, *, finished: bool) -> str:
    if gold.number is not None and answer.number is not None:
        return MATCH if numbers_agree(gold.number, answer.number) else MISMATCH
    infinite = {r"\infty", r"-\infty"}
    if _squeezed(gold.text) in infinite or _squeezed(answer.text) in infinite:
        return MISMATCH  # equal texts were settled before
    # A decimal target may stand for '2\pi', which is not work left to do; an integer never does.
    surds = gold.number is not None and gold.number.is_decimal
    if finished and gold.number is not None and not is_finished_number(answer.text, coefficients=surds):
        return MISMATCH if has_variable(answer.text) else "unevaluated"
    if finished and unfinished_operators(answer.text) - unfinished_operators(gold.text):
        return "unevaluated"
    decimal = any(scalar.number is not None and scalar.number.is_decimal for scalar in (gold, answer))
    return judge.equal(_expression(gold), _expression(answer), decimal=decimal)


def _expression(scalar: Scalar) -> str:
    """Return what a judge reads: a known number exactly, since `1e-05` would be a product with Euler's number."""
    return scalar.text if scalar.number is None else scalar.number.latex


def _compare_chain(gold: Shape, answer: Chain, judge: Judge) -> str:
    """Judge the last value, once every equality of the chain is true."""
    for first, second in itertools.pairwise(map(_evaluated, answer.members)):
        if isinstance(first, Scalar) and isinstance(second, Scalar):
            reason = compare_scalars(first, second, judge, finished=False)
        else:
            reason = compare(first, second, judge)
        if reason != MATCH:
            return MISMATCH if reason == "unparsable_target" else reason
    last = answer.members[-1]
    return compare(gold, replace(last, label=answer.label or last.label), judge)


def _evaluated(shape: Shape) -> Shape:
    r"""Return a member of a chain with what its sign and base mean: `35\%` is 0.35 and `12_8` is 10.

    In an equality nothing of this is forgiven. A unit in words may stand at the end alone: `2+3=5\text{ cm}`.
    """
    if isinstance(shape, Group):
        return replace(shape, members=tuple(map(_evaluated, shape.members)))
    if not isinstance(shape, Scalar):
        return shape
    if shape.unit == "%":
        return replace(_hundredth(shape), unit=None)
    if shape.base is not None and shape.base.isdecimal() and 2 <= int(shape.base) <= 36:
        try:
            value = int(shape.text, int(shape.base))
        except ValueError:  # a digit that the base does not have
            return shape
        return Scalar(str(value), number=LiteralNumber(Fraction(value)), label=shape.label)
    return shape


def _compare_relations(gold: Shape, answer: Shape, judge: Judge) -> str:
    """Compare two relations; a labelled value (`y=2x+3`) is one as well."""
    if isinstance(answer, Relation) and answer.operator == "=" and isinstance(gold, Scalar) and not gold.label:
        # '(x+1)^2 = x^2+2x+1' ends in the answer if it holds for every x.
        reason = judge.equal(answer.left, answer.right, decimal=False)
        return compare(gold, Scalar(answer.right), judge) if reason == MATCH else MISMATCH
    first, second = _as_relation(gold), _as_relation(answer)
    if first is None or second is None:
        return MISMATCH
    return judge.same_relation(first, second)


def _compare_definitions(gold: Shape, answer: Shape, judge: Judge) -> str:
    """Compare values of different names: `y=2x` and `x=y/2` are one line, `x=5` and `y=5` are two."""
    first, second = _as_relation(gold), _as_relation(answer)
    if first is None or second is None or not (has_variable(first.right) or has_variable(second.right)):
        return MISMATCH
    return judge.same_relation(first, second)


def _as_relation(shape: Shape) -> Relation | None:
    if isinstance(shape, Relation):
        return shape
    if isinstance(shape, Scalar) and shape.label is not None:
        return Relation("=", shape.label, shape.text)
    return None


def _labels_clash(gold: Shape, answer: Shape) -> bool:
    """Tell whether both are named and differently; `y` and `f(x)` both name a function's value."""
    if gold.label is None or answer.label is None:
        return False
    labels = {_squeezed(gold.label), _squeezed(answer.label)}
    functions = {label for label in labels if label.endswith(")") and not label.startswith("(")}
    return len(labels) == 2 and not (len(functions) == 1 and "y" in labels)


def _compare_groups(gold: Group, answer: Group, judge: Judge) -> str:
    if len(gold.members) != len(answer.members):
        return MISMATCH
    kinds = {gold.kind, answer.kind}
    if kinds == {"bracket"} or kinds == {"ratio"}:
        if gold.brackets != answer.brackets:
            return MISMATCH
        return _compare_in_order(gold.members, answer.members, judge)
    if kinds == {"list", "bracket"}:
        # '0,1' accepts '(0,1)' and the other way round; where one side is ordered, the order counts.
        if {gold.brackets, answer.brackets} != {"", "()"}:
            return MISMATCH
        return _compare_in_order(gold.members, answer.members, judge)
    if kinds <= {"list", "set", "union"} or kinds == {"intersection"}:
        return _compare_unordered(gold.members, answer.members, judge)
    return MISMATCH


def _compare_in_order(gold: Sequence[Shape], answer: Sequence[Shape], judge: Judge) -> str:
    for first, second in zip(gold, answer, strict=True):
        reason = compare(first, second, judge)
        if reason != MATCH:
            return reason
    return MATCH


def _compare_unordered(gold: Sequence[Shape], answer: Sequence[Shape], judge: Judge) -> str:
    """Pair the members off; being equal carries over, so the first partner is as good as any."""
    left = list(answer)
    for member in gold:
        for position, candidate in enumerate(left):
            reason = compare(member, candidate, judge)
            if reason == MATCH:
                del left[position]
                break
            if reason == "unparsable_target":
                return reason
        else:
            return MISMATCH
    return MATCH


def _alone(shape: Shape) -> Shape:
    """Return the only member of a set; `{5}` as a set of solutions is 5."""
    if isinstance(shape, Group) and shape.kind == "set":
        members = tuple(dict.fromkeys(shape.members))
        return members[0] if len(members) == 1 else replace(shape, members=members)
    return shape


def _squeezed(text: str) -> str:
    """Remove blanks, but for those that end a command before a letter or keep two numbers apart."""
    return _BLANKS.sub(lambda found: f"{found[1]} " if found[1] else found[2] or "", text)


def _plain_words(shape: Shape) -> str | None:
    """Return a text for comparison.

    Words have no case, no blanks and no parentheses round them. What holds anything else is compared sign by sign;
    only blanks, braces round one sign and the way words are set do not count.
    """
    if not isinstance(shape, Scalar | Words):
        return None
    words = _TEXT.sub(r"\1", shape.text).rstrip(".")
    if _ONLY_WORDS.fullmatch(words):
        words = re.sub(r"\s", "", words).casefold()
        while len(words) > 2 and words.startswith("(") and words.endswith(")"):
            words = words[1:-1]
        return words
    words = _SCRIPT_TEXT.sub(r"{\1}", shape.text)
    words = _TEXT.sub(lambda found: found[1].casefold() if len(found[1].strip()) > 1 else found[1], words)
    words = _squeezed(re.sub(r"\\mid(?![a-zA-Z])", "|", words.rstrip(".")))
    return re.sub(r"([\^_])\{([a-zA-Z0-9])\}", r"\1\2", words)
