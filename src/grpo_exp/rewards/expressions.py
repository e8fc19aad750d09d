r"""What can be told about an expression from its tokens alone."""

from __future__ import annotations

import re

from grpo_exp.rewards.literal_number import read_number
from grpo_exp.rewards.splitting import tokens

_MAX_DEPTH = 60
_GREEK = (
    r"alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|"
    r"phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega|ell"
)
_GREEK_COMMAND = re.compile(rf"\\(?:{_GREEK})")
_SYMBOL = rf"(?:[a-zA-Z]|\\(?:{_GREEK})(?![a-zA-Z]))"
_SUBSCRIPT = r"(?:\s*_\s*(?:\{[^{}]*\}|\w))?"
_POINT = rf"(?:{_SYMBOL}{_SUBSCRIPT}'*)"
_LABEL = re.compile(
    rf"{_POINT}\s*\(\s*(?:{_POINT}|\d+)(?:\s*,\s*(?:{_POINT}|\d+))*\s*\)"
    rf"|[a-zA-Z]\s*\^\s*\{{\s*-\s*1\s*\}}\s*\(\s*{_SYMBOL}\s*\)"
    rf"|\(\s*{_POINT}(?:\s*,\s*{_POINT})+\s*\)"
    rf"|(?:m\s*)?\\angle\s*[A-Z]{{1,3}}|\\overline\s*\{{\s*[A-Z]{{1,2}}\s*\}}|[A-Z]{{2,4}}"
    rf"|\\text\{{[^{{}}]*\}}|{_POINT}"
)
_UNFINISHED = frozenset({r"\sum", r"\prod", r"\int", r"\iint", r"\oint", r"\lim"})


def is_label(text: str) -> bool:
    """Tell whether a text only names something: `x`, `x_1`, `f(x)`, `(x,y)`, `AB`."""
    return len(text) <= 60 and _LABEL.fullmatch(text) is not None


def is_symbol(text: str) -> bool:
    """Tell whether a text is a single variable."""
    return len(text) <= 40 and re.fullmatch(_POINT, text) is not None


def has_variable(text: str) -> bool:
    """Tell whether an expression contains a variable (`e` and `i` are constants)."""
    return any(
        _GREEK_COMMAND.fullmatch(token) is not None or (len(token) == 1 and token.isalpha() and token not in "ei")
        for token in tokens(text)
    )


def unfinished_operators(text: str) -> frozenset[str]:
    """Return the sums, products, integrals and limits that a text leaves to be worked out."""
    return _UNFINISHED.intersection(tokens(text))


def is_finished_number(text: str, *, coefficients: bool = False) -> bool:
    r"""Tell whether a text is a number with nothing but fractions, powers, roots, factorials and binomials.

    `\frac{18}{28}`, `2^{10}`, `\sqrt[3]{8}`, `5!`, `\binom{5}{2}` and `-(3)^2` are; `2+3`, `2\cdot 3`,
    `2(3)`, `\sum_{k=1}^{3} k` and anything with a variable are not.

    Args:
        text: An expression in uniform LaTeX.
        coefficients: Admit a factor before a root or constant as well (`2\pi`, `3\sqrt{2}`).
    """
    reader = _FinishedNumber([token for token in tokens(text) if not token.isspace()], coefficients)
    return reader.quotient(0) and reader.at_end()


class _FinishedNumber:
    """A recursive descent over the tokens of one expression."""

    def __init__(self, words: list[str], coefficients: bool) -> None:
        self._words = words
        self._coefficients = coefficients
        self._next = 0

    def at_end(self) -> bool:
        return self._next >= len(self._words)

    def quotient(self, depth: int) -> bool:
        """Read a power, or powers divided by each other."""
        if depth > _MAX_DEPTH:
            return False
        self._take("-", "+")
        if not self._power(depth):
            return False
        while self._coefficients and not self.at_end() and self._words[self._next] in {r"\sqrt", r"\pi", "e"}:
            if not self._power(depth):
                return False
        while self._take("/"):
            if not self._power(depth):
                return False
        return True

    def _power(self, depth: int) -> bool:
        if not self._base(depth):
            return False
        while True:
            if self._take("!"):
                continue
            if not self._take("^"):
                return True
            if not self._argument(depth):
                return False

    def _base(self, depth: int) -> bool:
        if self._take("("):
            return self.quotient(depth + 1) and self._take(")")
        if self._take(r"\frac", r"\binom"):
            return self._argument(depth) and self._argument(depth)
        if self._take(r"\sqrt"):
            if self._take("[") and not (self.quotient(depth + 1) and self._take("]")):
                return False
            return self._argument(depth)
        return self._argument(depth)

    def _argument(self, depth: int) -> bool:
        if self._take("{"):
            return self.quotient(depth + 1) and self._take("}")
        if self._take(r"\pi", "e"):
            return True
        if self.at_end() or read_number(self._words[self._next]) is None:
            return False
        self._next += 1
        return True

    def _take(self, *words: str) -> bool:
        if not self.at_end() and self._words[self._next] in words:
            self._next += 1
            return True
        return False
