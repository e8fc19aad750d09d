r"""Read the shape of an answer from its LaTeX."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from grpo_exp.rewards.expressions import has_variable, is_label, is_symbol
from grpo_exp.rewards.latex_text import nesting_depth, uniform_latex
from grpo_exp.rewards.literal_number import LiteralNumber, read_number
from grpo_exp.rewards.shapes import Chain, Group, Matrix, Relation, Scalar, Shape, Words
from grpo_exp.rewards.splitting import (
    CONJUNCTIONS,
    has_loose_digits,
    outer_brackets,
    split_top,
    tokens,
    uniform_conjunctions,
)
from grpo_exp.rewards.units import split_unit

MAX_CHARACTERS = 2_000
"""Longest answer that is read."""
MAX_DEPTH = 100
"""Deepest nesting of brackets that is read."""

#: The most frequent answer by far, read without any of the rewriting.
_INTEGER = re.compile(r"-?\d{1,100}", re.ASCII)
_COMPARISONS = frozenset({"=", "<", ">", r"\le", r"\ge", r"\ne"})
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_BASE = re.compile(r"(\d[0-9A-Fa-f]*)\s*_\s*(?:\{\s*(?:\\text\{)?(\w+)\}?\s*\}|(\d))")
_BASE_NAMES = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip
_MATRIX = re.compile(r"\\begin\s*\{([pbBvV]?matrix|array)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_TEXT_WITH_NUMBER = re.compile(r"\s*([+-]?\$?[\d.,]*\d)\s*([A-Za-z][A-Za-z ./]*)?\s*")
_GROUPS_OR_BRACKETS = re.compile(r"(?<![\d.,])([1-9]\d{0,2}(?:,\d{3})+)(?!\d|,\S)|\\[{}]|[()\[\]]")
_STRAY_PRIME = re.compile(r"(?<![a-zA-Z'])(?<!_\d)(?<!_\{\d\})'")
_INFINITY = Scalar(r"\infty")
_MINUS_INFINITY = Scalar(r"-\infty")
_MIXED_SPACING = re.compile(r",\s.*,\S|,\S.*,\s", re.DOTALL)


def is_readable(text: str) -> bool:
    """Tell whether a text is short and flat enough to be read at all."""
    return len(text) <= MAX_CHARACTERS and nesting_depth(text) <= MAX_DEPTH


@lru_cache(maxsize=8192)
def read_shape(text: str) -> Shape:
    """Read an answer (not more than `is_readable` admits); what has no shape is `Words`."""
    if _INTEGER.fullmatch(text):
        return Scalar(text, number=LiteralNumber(Fraction(int(text))))
    return _read(uniform_conjunctions(uniform_latex(text)).strip())


def _read(text: str) -> Shape:
    """Try the shapes from the loosest operator to the tightest."""
    for read in (_read_whole_text, _read_list, _read_union, _read_relation, _read_matrix, _read_plus_minus):
        shape = read(text)
        if shape is not None:
            return shape
    return _read_bracket(text) or _read_value(text)


def _read_whole_text(text: str) -> Shape | None:
    r"""Read `\text{...}` as words, or as the number that it holds."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    number = _TEXT_WITH_NUMBER.fullmatch(found[1])
    if number is not None:
        return _read(number[1] + (rf"\text{{{number[2]}}}" if number[2] else ""))
    return Words(found[1])


def _read_list(text: str) -> Shape | None:
    """Read members separated by commas, semicolons, `and`, `or`; `or` between ranges makes a union."""
    joined = _join_groups(text)
    parts, operators = split_top(joined, CONJUNCTIONS | {",", ";"})
    if not operators:
        return None if joined == text else _read(joined)
    members = tuple(_read(part) for part in parts if part)
    if len(members) < 2:
        return members[0] if members else Words("")
    ranges = all(isinstance(member, Group) and member.kind in {"bracket", "union"} for member in members)
    if ranges and set(operators) == {r"\text{or}"}:
        return Group("union", members, label=_common_label(members))
    if ranges and r"\text{and}" in operators and r"\text{or}" not in operators and _common_label(members) is not None:
        return _intersection(members)
    return Group("list", members)


def _intersection(members: tuple[Shape, ...]) -> Shape:
    """Return the interval that a lower and an upper bound make together; what else holds at once stays as it is."""
    label = _common_label(members)
    bounds = [member for member in members if isinstance(member, Group) and member.kind == "bracket"]
    lower = [bound for bound in bounds if bound.members[1] == _INFINITY and bound.members[0] != _MINUS_INFINITY]
    upper = [bound for bound in bounds if bound.members[0] == _MINUS_INFINITY and bound.members[1] != _INFINITY]
    if not len(members) == len(bounds) == 2 or len(lower) != 1 or len(upper) != 1:
        return Group("intersection", members, label=label)
    low, high = lower[0].members[0], upper[0].members[1]
    brackets = lower[0].brackets[0] + upper[0].brackets[1]
    ends = [end.number.value for end in (low, high) if isinstance(end, Scalar) and end.number is not None]
    if len(ends) == 2 and (ends[0] > ends[1] or (ends[0] == ends[1] and brackets != "[]")):
        return Scalar(r"\emptyset", label=label)
    return Group("bracket", (low, high), brackets=brackets, label=label)


def _join_groups(text: str) -> str:
    """Remove the commas between groups of three digits, but not inside brackets.

    There they separate members: `(1,234)` is a pair.
    """
    depth = 0

    def rewrite(found: re.Match[str]) -> str:
        nonlocal depth
        if found[1] is not None:
            return found[0].replace(",", "") if depth == 0 else found[0]
        depth += 1 if found[0] in {"(", "[", r"\{"} else -1
        return found[0]

    return _GROUPS_OR_BRACKETS.sub(rewrite, text)


def _read_union(text: str) -> Shape | None:
    parts, operators = split_top(text, {r"\cup"})
    return Group("union", tuple(_read(part) for part in parts)) if operators else None


def _read_relation(text: str) -> Shape | None:
    r"""Read `x \in S`, `x = 5`, chains of equalities, ranges, equations and inequalities."""
    parts, operators = split_top(text, _COMPARISONS | {r"\in"})
    if not operators:
        return None
    if not all(parts):
        return Words(text)
    if operators == [r"\in"] and is_label(parts[0]):
        return _labelled(_read(parts[1]), parts[0])
    if r"\in" in operators:
        return Words(text)
    if set(operators) == {"="}:
        return _read_equalities(parts, text)
    span = _read_range(parts, operators)
    if span is not None:
        return span
    if len(operators) > 1 or _has_stray_signs(text):
        return Words(text)
    return Relation(operators[0], parts[0], parts[1])


def _read_equalities(parts: list[str], text: str) -> Shape:
    label = None
    if is_label(parts[0]):
        label, parts = parts[0].replace(" ", ""), parts[1:]
    if len(parts) == 1:
        return _labelled(_read(parts[0]), label)
    if label is None and len(parts) == 2 and (has_variable(parts[0]) or has_variable(parts[1])):
        if is_symbol(parts[1]) and not has_variable(parts[0]):  # 5 = x
            return _labelled(_read(parts[0]), parts[1])
        if _has_stray_signs(text):
            return Words(text)
        return Relation("=", parts[0], parts[1])
    return Chain(tuple(_read(part) for part in parts), label=label)


def _read_range(parts: list[str], operators: list[str]) -> Shape | None:
    r"""Read `x > 3`, `3 < x` and `2 \\le x < 5` as intervals."""
    if r"\ne" in operators or "=" in operators or len(operators) > 2:
        return None
    if len(operators) == 1:
        if is_symbol(parts[1]) and not has_variable(parts[0]):
            parts, operators = parts[::-1], [_FLIPPED[operators[0]]]
        if not is_symbol(parts[0]) or has_variable(parts[1]):
            return None
        if operators[0] in {"<", r"\le"}:
            parts, operators = [r"-\infty", parts[0], parts[1]], ["<", operators[0]]
        else:
            parts, operators = [parts[1], parts[0], r"\infty"], [_FLIPPED[operators[0]], "<"]
    elif operators[0] in {">", r"\ge"}:
        parts, operators = parts[::-1], [_FLIPPED[operator] for operator in reversed(operators)]
    low, symbol, high = parts
    ascending = set(operators) <= {"<", r"\le"}
    if not ascending or not is_symbol(symbol) or has_variable(low) or has_variable(high):
        return None
    brackets = ("[" if operators[0] == r"\le" else "(") + ("]" if operators[1] == r"\le" else ")")
    return Group("bracket", (_read_value(low), _read_value(high)), brackets=brackets, label=symbol)


def _read_matrix(text: str) -> Shape | None:
    found = _MATRIX.fullmatch(text)
    if found is None or found[1] in {"vmatrix", "Vmatrix"}:  # determinants and norms are values
        return None
    body = re.sub(r"^\s*\{[clr| ]*\}", "", found[2]) if found[1] == "array" else found[2]
    rows = [row for row in split_top(body, {r"\newline"})[0] if row and row != r"\hline"]
    return Matrix(tuple(tuple(_read(cell) for cell in split_top(row, {"&"})[0]) for row in rows))


def _read_plus_minus(text: str) -> Shape | None:
    r"""Read `1 \pm \sqrt{19}` and `\frac{1 \pm \sqrt{5}}{2}` as their two values; all signs turn together."""
    signs = [token for token in tokens(text) if token in {r"\pm", r"\mp"}]
    if not 1 <= len(signs) <= 4 or re.search(r"\\[pm][mp]\s*$", text):
        return None
    values: list[Shape] = []
    for plus, minus in (("+", "-"), ("-", "+")):
        value = re.sub(r"\\pm(?![a-zA-Z])\s*", plus, text)
        value = re.sub(r"\\mp(?![a-zA-Z])\s*", minus, value)
        values.append(_read(re.sub(r"(^|[{(\[,])\s*\+", r"\1", value)))
    return Group("list", tuple(values))


def _read_bracket(text: str) -> Shape | None:
    found = outer_brackets(text)
    if found is None:
        return None
    opening, content, closing = found
    if _MIXED_SPACING.search(content):  # in '(1,234, 5)' the tight comma is part of a number
        content = _join_groups(content)
    separators, operators = split_top(content, {",", ";"})
    if opening == r"\{" and not {"|", r"\mid", ":"}.isdisjoint(split_top(content, {"|", r"\mid", ":"})[1]):
        return Words(text)
    parts = [part for part in separators if part] if operators else [content]
    members = tuple(_read(part) for part in parts)
    if opening == r"\{":
        return Group("set", members)
    if len(members) == 1:
        # '(C)' is a choice and '(5)' a number; what else is bracketed alone stays an expression.
        return members[0] if opening == "(" and closing == ")" else None
    brackets = {"]": "(", "[": "["}.get(opening, opening) + {"[": ")", "]": "]"}.get(closing, closing)
    return Group("bracket", members, brackets=brackets)


def _read_value(text: str) -> Shape:
    """Read one value: unit, base, number, ratio, else an expression or words."""
    split = split_unit(text)
    if split is None:
        return Words(text)
    expression, unit = split
    if expression == r"\mathbb{R}":
        return Group("bracket", (Scalar(r"-\infty"), Scalar(r"\infty")), brackets="()")
    found = _BASE.fullmatch(expression)
    if found is not None:
        base = found[2] or found[3]
        base = _BASE_NAMES.get(base.lower(), base)
        if not (re.fullmatch(r"[a-zA-Z]", base) or (base.isdecimal() and 2 <= int(base[:3]) <= 36)):
            return Words(text)  # '5_{million}'
        return Scalar(found[1].upper().lstrip("0") or "0", base=base)
    parts, colons = split_top(expression, {":"})
    if colons:
        members = tuple(_read(part) if part else Words("") for part in parts)
        if not all(isinstance(member, Scalar) for member in members):
            return Words(text)
        # The unit of '3:45 p.m.' goes with the last member, where a missing one is forgiven, too.
        return Group("ratio", (*members[:-1], replace(members[-1], unit=unit)))
    # A bare word is a name, not the product of its letters (north would equal thorn).
    if re.fullmatch(r"[A-Za-z]{4,}(?: [A-Za-z]+)*|(?i:yes|no)", expression):
        return Words(text)
    if r"\text" in expression or re.search(r"\\(?:ldots|newline|approx|begin)(?![a-zA-Z])", expression):
        return Words(text)
    number = read_number(expression)
    if number is None and _has_stray_signs(expression):
        return Words(text)
    return Scalar(expression, number=number, unit=unit)


def _has_stray_signs(text: str) -> bool:
    """Tell whether a text holds digits set apart by a blank, or a prime that is not part of a name.

    The parser would read the digits as one number and leave the prime (feet, minutes of arc) out.
    """
    return has_loose_digits(text) or _STRAY_PRIME.search(text) is not None


def _labelled(shape: Shape, label: str | None) -> Shape:
    """Return the shape with a label; the members of a list share the label of its first one already."""
    if label is None or shape.label is not None:
        return shape
    return replace(shape, label=label)


def _common_label(members: tuple[Shape, ...]) -> str | None:
    labels = {member.label for member in members}
    return labels.pop() if len(labels) == 1 else None
