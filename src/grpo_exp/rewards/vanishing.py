"""Decide whether an expression is zero. Imported by the checker's processes only.

A constant is zero if this is proven, or if a thousand digits say so and nothing in it is tiny or huge. An expression
with variables is zero if it is so at points that nobody can know before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import SystemRandom

import sympy
from sympy.core.evalf import PrecisionExhausted
from sympy.core.function import AppliedUndef

#: Digits that are tried before a difference may count as zero. Rational values never come here: they are exact.
_MAX_DIGITS = 1000
_MORE_DIGITS = 10_000
#: Powers of ten between which all parts of a constant must lie for that many digits to be convincing.
_MODERATE = 60

_NUM_POINTS = 4
_MAX_VARIABLES = 64
_MIN_INTEGERS = 3
_COUNTED = (sympy.factorial, sympy.binomial, sympy.gamma)
_BENT = (sympy.Abs, sympy.sign, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling)


def _expression(value: sympy.Basic) -> sympy.Expr:
    """Return the value; a substitution keeps an expression one, which SymPy's types do not say."""
    assert isinstance(value, sympy.Expr)
    return value


def _secret_points() -> list[list[sympy.Expr]]:
    r"""Draw the points where expressions are tried; a point in the source could be aimed at.

    They are positive first, since `\sqrt{x}\sqrt{y}` is `\sqrt{xy}` there, and between 1/4 and 4.
    """
    return [
        [_fraction(_SECRET.randint(250, 4000), _SECRET.choice((997, 1009, 1013))) for _ in range(_MAX_VARIABLES)]
        for _ in range(_NUM_POINTS)
    ]


def _fraction(numerator: int, denominator: int) -> sympy.Expr:
    return _expression(sympy.Rational(numerator, denominator))


def _secret_steps(limit: int) -> list[int]:
    return [_SECRET.randint(2, limit) for _ in range(_MAX_VARIABLES)]


_SECRET = SystemRandom()
_POINTS = _secret_points()
_FAR: list[sympy.Expr] = [_fraction(_SECRET.randint(10**6, 10**7), 101) for _ in range(_MAX_VARIABLES)]
#: Distances between the natural numbers that are tried: small ones, which tell most apart quickly, then larger ones.
_STEPS = [_secret_steps(limit) for limit in (9, 9, 40, 40, 200, 200)]


def _natural_numbers(steps: list[int], num: int, *, order: int) -> list[sympy.Expr]:
    r"""Return different natural numbers, ascending, descending or shuffled: `\binom{n}{k}` is 0 where k > n."""
    values: list[sympy.Expr] = [sympy.Integer(value) for value in accumulate(steps[:num])]
    if order > 1:
        _SECRET.shuffle(values)
    return values[::-1] if order == 1 else values


def vanishes(difference: sympy.Expr) -> bool:
    """Tell whether an expression is zero for all values of its variables; nothing is rounded."""
    difference = _expression(difference.doit())
    symbols = sorted(difference.free_symbols, key=str)
    if not symbols:
        return is_zero(difference)
    if len(symbols) > _MAX_VARIABLES:
        return sympy.expand(difference) == 0
    counted = [symbol for symbol in symbols if _is_counted(symbol, difference)]
    if counted:
        return _vanishes_at_integers(difference, counted)
    for values in _POINTS:
        value = _at(difference, symbols, values)
        if value.atoms(AppliedUndef) or not value.is_number:
            return sympy.simplify(difference) == 0
        if value.is_finite is False or not is_zero(value):
            return False
    return not _differs_elsewhere(difference, symbols)


def _vanishes_at_integers(difference: sympy.Expr, counted: list[sympy.Basic]) -> bool:
    """Tell whether an expression is zero where the variables of factorials and binomials are natural numbers."""
    num_points = 0
    for order, steps in zip((0, 1, 0, 1, 2, 2), _STEPS, strict=True):
        value = _at(difference, counted, _natural_numbers(steps, len(counted), order=order))
        if not value.has(sympy.nan, sympy.zoo):  # a factorial of a negative number
            num_points += 1
            if not vanishes(value):
                return False
    return num_points >= _MIN_INTEGERS


def is_zero(value: sympy.Expr) -> bool:
    """Tell whether a constant is zero."""
    if value.is_Rational or value.is_zero is True:
        return bool(value == 0) or value.is_zero is True
    differs = _differs_within(value, _MAX_DIGITS)
    if differs is None and not _is_moderate(value):
        differs = _differs_within(value, _MORE_DIGITS)
        return _is_proven_zero(value) if differs is None else not differs
    return not differs


def _differs_within(value: sympy.Expr, num_digits: int) -> bool | None:
    """Tell whether a constant is another number than zero, or None where so many digits do not show it."""
    try:
        return bool(value.evalf(15, maxn=num_digits, strict=True) != 0)
    except PrecisionExhausted:
        return None


def _is_counted(symbol: sympy.Basic, difference: sympy.Expr) -> bool:
    return any(symbol in part.free_symbols for part in difference.atoms(*_COUNTED))


def _at(difference: sympy.Expr, symbols: list[sympy.Basic], values: Sequence[sympy.Basic]) -> sympy.Expr:
    return _expression(difference.xreplace(dict(zip(symbols, values[: len(symbols)], strict=True))).doit())


def _differs_elsewhere(difference: sympy.Expr, symbols: list[sympy.Basic]) -> bool:
    """Tell whether two real expressions part beyond the points, as `x` and `|x|` or `|x-100|` and `100-x` do."""
    if _differs_at(difference, symbols, [-value for value in _POINTS[0]]):
        return True
    has_root = any(not power.exp.is_integer for power in difference.atoms(sympy.Pow))
    if not has_root and not difference.atoms(*_BENT):
        return False
    return any(_differs_at(difference, symbols, [sign * value for value in _FAR]) for sign in (1, -1))


def _differs_at(difference: sympy.Expr, symbols: list[sympy.Basic], values: Sequence[sympy.Basic]) -> bool:
    """Tell whether an expression is another number than zero at a point.

    Nothing is told where a root or logarithm of a negative number would be needed.
    """
    point = dict(zip(symbols, values[: len(symbols)], strict=True))
    for part in difference.atoms(sympy.Pow, sympy.log):
        inside = part.args[0].xreplace(point).doit()
        if not inside.is_nonnegative and not (isinstance(part, sympy.Pow) and part.exp.is_integer):
            return False
    value = _expression(difference.xreplace(point).doit())
    return value.is_real is True and value.is_finite is True and not is_zero(value)


def _is_moderate(value: sympy.Expr) -> bool:
    """Tell whether no part of a constant is tiny or huge, so that zero in a thousand digits is no coincidence."""
    for part in sympy.preorder_traversal(value):
        if isinstance(part, sympy.Rational):
            if max(abs(part.p), part.q) >= 10**_MODERATE:
                return False
        elif isinstance(part, sympy.Expr) and part is not value:
            size = abs(part.evalf(15))
            if not (size.is_Number and size.is_finite) or not (
                size == 0 or -_MODERATE < sympy.log(size, 10) < _MODERATE
            ):
                return False
    return True


def _is_proven_zero(value: sympy.Expr) -> bool:
    """Tell whether algebra shows that a constant is zero."""
    if sympy.expand(value) == 0 or sympy.simplify(value) == 0:
        return True
    if value.is_algebraic is not True:
        return False
    unknown = sympy.Dummy("unknown")
    return sympy.minimal_polynomial(value, unknown) == unknown
