"""Expressions of a Countdown task: read by rules, never executed, and computed exactly."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.answer_sources import read_answer
from grpo_exp.rewards.columns import Columns, read_prefilled, read_targets
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_answers import CountdownComponent

MAX_CHARACTERS = 200
"""Longest expression that is read; six numbers of three digits take fewer than fifty."""
COLUMN = "nums"
"""Column with the numbers."""

_SIGNS = str.maketrans({"×": "*", "÷": "/", "·": "*", "−": "-"})  # noqa: RUF001 - as models write them
_ALLOWED = re.compile(r"[0-9+\-*/() \t]+")
_OPERATIONS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
}


class _NoExpressionError(Exception):
    """The text is something else than a sum, difference, product or quotient of integers."""


def score_countdown(
    settings: CountdownComponent, name: str, completions: Sequence[Completion], columns: Columns
) -> list[Score]:
    """Score a batch.

    Raises:
        ConfigError: A column that is needed is not there.
    """
    targets, prefilled = read_targets(name, settings.kind, columns), read_prefilled(completions, columns)
    if COLUMN not in columns:
        raise ConfigError(
            f"reward.components.{name}: the data set has no column {COLUMN!r} (it has {sorted(columns)}); "
            f"kind={settings.kind} needs the numbers of each task; use dataset=countdown, or "
            f"dataset.extra_columns=[{COLUMN}]"
        )
    rows = zip(completions, targets, columns[COLUMN], prefilled, strict=True)
    return [
        _score(read_answer(completion, settings.source, prefilled=opened), target, numbers)
        for completion, target, numbers, opened in rows
    ]


def check_task(target: Any, numbers: Any) -> Score:
    """Tell whether a task can be judged: a whole number as target, and a list of whole numbers."""
    if _to_integer(target) is None:
        return Score(None, "unparsable_target")
    if not isinstance(numbers, list) or not numbers or any(_to_integer(number) is None for number in numbers):
        return Score(None, "no_numbers")
    return Score(1.0, "match")


def judge_expression(text: str, target: int, numbers: Sequence[int]) -> Score:
    """Return what an expression is worth: 1.0 where it uses each number exactly once and has the target's value."""
    text = text.strip().translate(_SIGNS)
    if len(text) > MAX_CHARACTERS:
        return Score(0.0, "too_long")
    if not _ALLOWED.fullmatch(text):
        return Score(0.0, "not_an_expression")
    used: list[int] = []
    try:
        value = _evaluate(ast.parse(text, mode="eval").body, used)
    except ZeroDivisionError:
        return Score(0.0, "division_by_zero")
    except (_NoExpressionError, SyntaxError, RecursionError, MemoryError):
        return Score(0.0, "not_an_expression")
    if Counter(used) != Counter(numbers):
        return Score(0.0, "wrong_numbers")
    return Score(1.0, "match") if value == target else Score(0.0, "mismatch")


def _score(answer: str | Score, target: Any, numbers: Any) -> Score:
    checked = check_task(target, numbers)
    if checked.value is None:
        return checked
    if isinstance(answer, Score):
        return answer
    wanted = _to_integer(target)
    assert wanted is not None  # check_task has looked
    return judge_expression(answer, wanted, [int(number) for number in numbers])


def _evaluate(node: ast.expr, used: list[int]) -> Fraction:
    """Return the value of a tree, and add the numbers in it to `used`."""
    match node:
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_evaluate(left, used), _evaluate(right, used))
        case ast.UnaryOp(ast.USub(), operand):
            return -_evaluate(operand, used)
        case ast.UnaryOp(ast.UAdd(), operand):
            return _evaluate(operand, used)
        case ast.Constant(int() as value):
            used.append(value)
            return Fraction(value)
    raise _NoExpressionError


def _to_integer(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()) else None
