r"""Cut uniform LaTeX at operators that stand outside all brackets."""

from __future__ import annotations

import re
from collections.abc import Container

_TOKEN = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|\\.|\d[\d.]*|.", re.DOTALL)
_OPENERS = frozenset({"{", "(", "[", r"\{", r"\lfloor", r"\lceil", r"\begin"})
_CLOSERS = frozenset({"}", ")", "]", r"\}", r"\rfloor", r"\rceil", r"\end"})
CONJUNCTIONS = frozenset({r"\text{and}", r"\text{or}"})
_CONJUNCTION = re.compile(
    r"\\text\{\s*,?\s*(?P<text>(?i:and|or))\s*,?\s*\}|\\text\{[^{}]*\}|(?<![a-zA-Z\\{])(?P<bare>and|or)(?![a-zA-Z}])"
)

_LOOSE_DIGITS = re.compile(r"(?<![_^])[\d.](?: +[\d.]|\s*\{\s*[\d.]+\s*\})")


def has_loose_digits(text: str) -> bool:
    r"""Tell whether a blank or braces part digits (`1 2`, `1{2}`): neither one number nor a product.

    In `2^3 5` and `\log_2 8` the first digit alone belongs to the operator.
    """
    return _LOOSE_DIGITS.search(text) is not None


def uniform_conjunctions(text: str) -> str:
    r"""Write every `and` and `or` between values as `\text{and}` and `\text{or}`."""

    def rewrite(found: re.Match[str]) -> str:
        word = found["text"] or found["bare"]
        return rf" \text{{{word.lower()}}} " if word else found[0]

    return _CONJUNCTION.sub(rewrite, text)


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: commands, whole texts, numbers, single characters."""
    return _TOKEN.findall(text)


def split_top(text: str, operators: Container[str]) -> tuple[list[str], list[str]]:
    """Cut a text at the operators outside brackets.

    Brackets are only counted, not matched by kind: `[2,5)` is one pair.

    Returns:
        The parts (trimmed) and, between them, the operators; one part more than operators.
    """
    parts: list[str] = []
    found: list[str] = []
    depth = start = position = 0
    for token in tokens(text):
        if token in _OPENERS:
            depth += 1
        elif token in _CLOSERS:
            depth -= 1
        elif depth == 0 and token in operators:
            parts.append(text[start:position].strip())
            found.append(token)
            start = position + len(token)
        position += len(token)
    parts.append(text[start:].strip())
    return parts, found


def outer_brackets(text: str) -> tuple[str, str, str] | None:
    """Return opening bracket, content and closing bracket when one pair encloses the whole text."""
    found = tokens(text)
    if len(found) < 2 or found[0] not in {"(", "[", r"\{", "]"}:
        return None
    opening, closing = found[0], found[-1]
    if closing not in {")", "]", r"\}", "["} or (opening == r"\{") != (closing == r"\}"):
        return None
    depth = 1
    for token in found[1:-1]:
        if token in _OPENERS:
            depth += 1
        elif token in _CLOSERS:
            depth -= 1
            if depth == 0:
                return None
    # ']2,5[' is the other way to write an open interval; it only is one if nothing else is bracketed.
    if depth != 1:
        return None
    return opening, text[len(opening) : len(text) - len(closing)].strip(), closing
