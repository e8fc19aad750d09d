r"""Decide equality of expressions with SymPy. Imported by the checker's processes only.

LaTeX is read by the parser of math-verify. Its own comparison is not used: it rounds (`1/2^{120}` equals
`1/2^{121}`), drops variables as units and has time-outs that only work on a main thread.
"""

from __future__ import annotations

import re
from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

from grpo_exp.rewards.literal_number import DECIMAL_TOLERANCE
from grpo_exp.rewards.shapes import Relation
from grpo_exp.rewards.vanishing import is_zero, vanishes

_CONVERSION = ConversionConfig(lowercase_symbols=False, interpret_simple_eq_as_assignment=False)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}

#: A name with primes (`x'`, `x_1'`); the parser drops them.
_PRIMED = re.compile(r"([a-zA-Z])(?:_\{?([a-zA-Z0-9])\}?)?('+)")
#: The variable `T` as an exponent; the parser takes it for a transposition and drops that of a number.
_POWER_T = re.compile(r"\^\s*(?:T(?![a-zA-Z])|\{\s*T\s*\})")


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
    latex = _POWER_T.sub("^{(T)}", latex)
    latex = _PRIMED.sub(lambda found: f"{found[1]}_{{{found[2] or ''}{'prime' * len(found[3])}}}", latex)
    try:
        parsed = latex2sympy(latex, is_real=True, normalization_config=None, conversion_config=_CONVERSION)
    except Exception:  # the parser raises plain Exception, and whatever SymPy raises, on text that is not LaTeX
        return None
    if not isinstance(parsed, sympy.Basic):
        return None
    exact = {number: sympy.Rational(str(number)) for number in parsed.atoms(sympy.Float)}
    imaginary = {symbol: sympy.I for symbol in parsed.free_symbols if str(symbol) == "i"}
    return parsed.xreplace(exact | imaginary) if exact or imaginary else parsed


def _agree_as_decimal(first: sympy.Expr, second: sympy.Expr) -> bool:
    """Compare a decimal with a value: exactly, unless that has no finite decimal expansion."""
    first, second = first.doit(), second.doit()
    difference = first - second
    if is_zero(difference):
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
