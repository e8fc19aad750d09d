r"""Numbers as people write them: integers, decimals, fractions, mixed and scientific numbers, exactly.

The text is uniform (see `latex_text`). What is no plain number here (`2^{10}`, `\sqrt{2}`) is an expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

DECIMAL_TOLERANCE = Fraction(1, 1_000_000)
"""Relative distance within which a decimal stands for an irrational or a repeating value."""

#: Larger exponents are left to the checker, which has a time limit.
_MAX_EXPONENT = 400

_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)"
_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?"
_SIGN = r"([+-]?)\s*"
_DECIMAL = re.compile(rf"{_SIGN}({_GROUPED}|{_DIGITS})")
_FRACTION = re.compile(rf"{_SIGN}(?:(\d+)\s*)?\\frac\s*\{{\s*{_SIGN}({_DIGITS})\s*\}}\s*\{{\s*{_SIGN}({_DIGITS})\s*\}}")
_SLASH = re.compile(rf"{_SIGN}(?:(\d+) )?({_DIGITS})\s*/\s*({_DIGITS})")
_SCIENTIFIC = re.compile(
    rf"{_SIGN}(?:({_DIGITS})\s*\\cdot\s*10\s*\^\s*(?:\{{\s*([+-]?\d{{1,4}})\s*\}}|(\d))|({_DIGITS})[eE]([+-]?\d{{1,4}}))"
)
_REPEATING = re.compile(rf"{_SIGN}(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{{\s*(\d+)\s*\}}")


@dataclass(frozen=True, slots=True)
class LiteralNumber:
    """A number that stands for itself.

    Args:
        value: The exact value.
        is_decimal: Written as a decimal, which may stand for a value it cannot write out.
    """

    value: Fraction
    is_decimal: bool = False

    @property
    def terminates(self) -> bool:
        """Tell whether the value has a finite decimal expansion."""
        denominator = self.value.denominator
        for prime in (2, 5):
            while denominator % prime == 0:
                denominator //= prime
        return denominator == 1

    @property
    def latex(self) -> str:
        """Return the exact value as an expression that reads the same everywhere, unlike `1e-05`."""
        top, bottom = self.value.numerator, self.value.denominator
        digits = str(Decimal(abs(top))) if bottom == 1 else rf"\frac{{{Decimal(abs(top))}}}{{{Decimal(bottom)}}}"
        return f"-{digits}" if top < 0 else digits


def read_number(text: str) -> LiteralNumber | None:
    """Return the number that a whole text spells, or None."""
    text = _without_outer_braces(text.strip())
    if not text or len(text) > 10_000:
        return None
    for read in (_read_decimal, _read_fraction, _read_slash, _read_scientific, _read_repeating):
        number = read(text)
        if number is not None:
            return number
    return None


def numbers_agree(first: LiteralNumber, second: LiteralNumber) -> bool:
    """Compare two numbers: exactly, unless one is a decimal for a value that has no finite one."""
    if first.value == second.value:
        return True
    if first.is_decimal and not second.is_decimal and not second.terminates:
        return abs(first.value - second.value) <= DECIMAL_TOLERANCE * abs(second.value)
    if second.is_decimal and not first.is_decimal and not first.terminates:
        return abs(first.value - second.value) <= DECIMAL_TOLERANCE * abs(first.value)
    return False


def _without_outer_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and "{" not in text[1:] and "}" not in text[:-1]:
        text = text[1:-1].strip()
    return text


def _exact(digits: str) -> Fraction:
    """Read digits; through Decimal, because int() refuses texts of more than 4300 digits."""
    return Fraction(Decimal(digits.replace(",", "")))


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


def _read_decimal(text: str) -> LiteralNumber | None:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    return LiteralNumber(_signed(found[1], _exact(found[2])), is_decimal="." in found[2])


def _read_fraction(text: str) -> LiteralNumber | None:
    found = _FRACTION.fullmatch(text)
    if found is None:
        return None
    sign, whole, top_sign, top, bottom_sign, bottom = found.groups()
    denominator = _signed(bottom_sign, _exact(bottom))
    if denominator == 0 or (whole and (top_sign or bottom_sign)):
        return None
    value = _exact(whole or "0") + _signed(top_sign, _exact(top)) / denominator
    return LiteralNumber(_signed(sign, value))


def _read_slash(text: str) -> LiteralNumber | None:
    found = _SLASH.fullmatch(text)
    if found is None or _exact(found[4]) == 0:
        return None
    return LiteralNumber(_signed(found[1], _exact(found[2] or "0") + _exact(found[3]) / _exact(found[4])))


def _read_scientific(text: str) -> LiteralNumber | None:
    found = _SCIENTIFIC.fullmatch(text)
    if found is None:
        return None
    exponent = int(found[3] or found[4] or found[6])
    if abs(exponent) > _MAX_EXPONENT:
        return None
    value = _exact(found[2] or found[5]) * Fraction(10) ** exponent
    return LiteralNumber(_signed(found[1], value), is_decimal=True)


def _read_repeating(text: str) -> LiteralNumber | None:
    found = _REPEATING.fullmatch(text)
    if found is None or len(text) > 200:
        return None
    sign, whole, fixed, repeated = found.groups()
    shift = Fraction(10) ** len(fixed)
    tail = Fraction(int(repeated), 10 ** len(repeated) - 1) / shift
    return LiteralNumber(_signed(sign, _exact(whole or "0") + _exact(fixed or "0") / shift + tail))
