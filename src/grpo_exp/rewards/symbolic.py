r"""Decide equality of expressions with SymPy. Imported by the checker's processes only.

LaTeX is read by the parser of math-verify. Its own comparison is not used: it rounds (`1/2^{120}` equals
`1/2^{121}`), drops variables as units and has time-outs that only work on a main thread.
"""

from __future__ import annotations

from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from sympy.core.evalf import PrecisionExhausted

from grpo_exp.rewards.literal_number import DECIMAL_TOLERANCE
from grpo_exp.rewards.shapes import Relation

_CONVERSION = ConversionConfig(lowercase_symbols=False, interpret_simple_eq_as_assignment=False)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}

#: Digits that are tried before a difference counts as zero. Rational values never come here: they are exact.
_MAX_DIGITS = 1000

#: Where an expression is tried out; positive values first, since `\sqrt{x}\sqrt{y}` is `\sqrt{xy}` there.
_POINTS = ((7, 11), (13, 5), (3, 17), (29, 23))


class SymbolicJudge:
    """The `Judge` that computes. May take forever: run it where it can be killed."""

    def equal(self, gold: str, answer: str, *, decimal: bool) -> str:
        """Compare two expressions; see `comparison.Judge`."""
        first, second = parse(gold), parse(answer)
        if first is None or second is None:
            return "unparsable_target" if first is None else "unparsable"
        if not (isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr)):
            return "match" if first == second else "mismatch"
        if decimal and not (first.free_symbols or second.free_symbols):
            return _verdict(_agree_as_decimal(first, second))
        return _verdict(vanishes(first - second))

    def same_relation(self, gold: Relation, answer: Relation) -> str:
        """Tell whether two relations differ by a constant factor only; see `comparison.Judge`."""
        sides = [parse(text) for text in (gold.left, gold.right, answer.left, answer.right)]
        expressions = [side for side in sides if isinstance(side, sympy.Expr)]
        if len(expressions) < len(sides):
            wrong_gold = not all(isinstance(side, sympy.Expr) for side in sides[:2])
            return "unparsable_target" if wrong_gold else "unparsable"
        first, second = expressions[0] - expressions[1], expressions[2] - expressions[3]
        same = gold.operator == answer.operator
        if not same and _FLIPPED.get(gold.operator) != answer.operator:
            return "mismatch"
        factor = sympy.simplify(second.doit() / first.doit())
        if factor.free_symbols or not factor.is_finite or vanishes(factor):
            return "mismatch"
        if gold.operator in _FLIPPED:
            return _verdict(bool(factor.is_positive if same else factor.is_negative))
        return "match"


def _verdict(same: bool) -> str:
    return "match" if same else "mismatch"


@lru_cache(maxsize=512)
def parse(latex: str) -> sympy.Basic | None:
    """Return the expression with exact numbers, or None when it cannot be read."""
    try:
        parsed = latex2sympy(latex, is_real=True, normalization_config=None, conversion_config=_CONVERSION)
    except Exception:  # the parser raises plain Exception, and whatever SymPy raises, on text that is not LaTeX
        return None
    if not isinstance(parsed, sympy.Basic):
        return None
    exact = {number: sympy.Rational(str(number)) for number in parsed.atoms(sympy.Float)}
    imaginary = {symbol: sympy.I for symbol in parsed.free_symbols if str(symbol) == "i"}
    return parsed.xreplace(exact | imaginary) if exact or imaginary else parsed


def vanishes(difference: sympy.Expr) -> bool:
    """Tell whether an expression is zero for all values of its variables; nothing is rounded."""
    difference = difference.doit()
    if not difference.free_symbols:
        return _is_zero(difference)
    symbols = sorted(difference.free_symbols, key=str)
    for numerator, denominator in _POINTS:
        values = {
            symbol: sympy.Rational(numerator + 2 * place * place + place, denominator)
            for place, symbol in enumerate(symbols)
        }
        value = _expression(difference.xreplace(values).doit())
        if value.atoms(sympy.core.function.AppliedUndef) or not value.is_number:
            return sympy.simplify(difference) == 0
        if value.is_finite is False or not _is_zero(value):
            return False
    return not _differs_below_zero(difference, symbols)


def _differs_below_zero(difference: sympy.Expr, symbols: list[sympy.Basic]) -> bool:
    """Tell whether two real expressions part where a variable is negative, as `x` and `|x|` do.

    Nothing is told where a root or logarithm of a negative number would be needed.
    """
    values = {symbol: sympy.Rational(-7 - 2 * place, 3) for place, symbol in enumerate(symbols)}
    for part in difference.atoms(sympy.Pow, sympy.log):
        inside = part.args[0].xreplace(values).doit()
        if not inside.is_nonnegative and not (isinstance(part, sympy.Pow) and part.exp.is_integer):
            return False
    value = _expression(difference.xreplace(values).doit())
    return value.is_real is True and value.is_finite is True and not _is_zero(value)


def _expression(value: sympy.Basic) -> sympy.Expr:
    """Return the value; a substitution keeps an expression one, which SymPy's types do not say."""
    assert isinstance(value, sympy.Expr)
    return value


def _is_zero(value: sympy.Expr) -> bool:
    """Tell whether a constant is zero."""
    if value.is_Rational or value.is_zero is True:
        return bool(value == 0) or value.is_zero is True
    try:
        return bool(value.evalf(15, maxn=_MAX_DIGITS, strict=True) == 0)
    except PrecisionExhausted:
        return True


def _agree_as_decimal(first: sympy.Expr, second: sympy.Expr) -> bool:
    """Compare a decimal with a value: exactly, unless that has no finite decimal expansion."""
    first, second = first.doit(), second.doit()
    difference = first - second
    if _is_zero(difference):
        return True
    if _terminates(first) and _terminates(second):
        return False
    size = max(abs(first.evalf(30)), abs(second.evalf(30)))
    return bool(abs(difference.evalf(30)) <= size * sympy.Rational(DECIMAL_TOLERANCE))


def _terminates(value: sympy.Expr) -> bool:
    """Tell whether a constant has a finite decimal expansion."""
    if not isinstance(value, sympy.Rational):
        return False
    denominator = int(value.q)
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
