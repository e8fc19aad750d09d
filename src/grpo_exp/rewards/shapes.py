"""What an answer is made of: values, words, groups, matrices, relations."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_exp.rewards.literal_number import LiteralNumber


@dataclass(frozen=True, slots=True)
class Scalar:
    r"""One value.

    Args:
        text: Its expression in uniform LaTeX, without unit and label.
        number: Its exact value where the text is a plain number, else None.
        unit: `cm`, `cm^2`, `%`, `degree`, `dollar` …, or None where none is named.
        label: What it is the value of (`x` in `x=5`), or None.
        base: The base that a digit string names (`8` in `52_8`), else None; `text` then holds the digits.
    """

    text: str
    number: LiteralNumber | None = None
    unit: str | None = None
    label: str | None = None
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """Something that is compared as text: a name, a direction, or LaTeX that has no other shape here."""

    text: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several members.

    Args:
        kind: `list` (bare, unordered), `set` (unordered), `bracket` (tuple or interval: ordered, and the
            brackets count), `union` (of intervals and sets, unordered), `intersection` (of ranges that hold at
            once, unordered), `ratio` (`3:45`, ordered).
        members: The members in the order in which they stand.
        brackets: Opening and closing one of a `bracket`, else empty.
        label: The variable that it is about (`x` in `x \\in [2,3]`), or None.
    """

    kind: str
    members: tuple[Shape, ...]
    brackets: str = ""
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of values; which brackets are drawn does not matter."""

    rows: tuple[tuple[Shape, ...], ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """Values said to be equal, `2+3=5`; the last one is the answer if all are."""

    members: tuple[Shape, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    r"""An equation or inequality that does not simply name a value.

    Args:
        operator: `=`, `<`, `>`, `\\le`, `\\ge` or `\\ne`.
        left: Expression left of the operator.
        right: Expression right of it.
        label: Always None; every shape has one.
    """

    operator: str
    left: str
    right: str
    label: str | None = None


Shape = Scalar | Words | Group | Matrix | Chain | Relation


def expressions_of(shape: Shape) -> list[str]:
    """Return the expressions in a shape that text and plain numbers do not settle."""
    if isinstance(shape, Scalar):
        return [] if shape.number is not None or shape.base is not None else [shape.text]
    if isinstance(shape, Relation):
        return [shape.left, shape.right]
    if isinstance(shape, Group | Chain):
        return [text for member in shape.members for text in expressions_of(member)]
    if isinstance(shape, Matrix):
        return [text for row in shape.rows for cell in row for text in expressions_of(cell)]
    return []
