"""Procedural sums and differences, a function of (seed, split, index).

A problem belongs to the test split by a hash of the problem alone, so train and test are disjoint for every
seed and difficulty. The order within a split is drawn from a hash of (seed, split, index), so neighbouring
seeds share nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]

#: One problem in four is held out.
_TEST_SHARE = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """`left operation right`, with a small non-negative left and right."""

    left: int
    operation: str
    right: int

    @property
    def question(self) -> str:
        """Text of the prompt."""
        return f"{self.left}{self.operation}{self.right}?"

    @property
    def answer(self) -> int:
        """The right answer; negative for some differences."""
        return self.left + self.right if self.operation == "+" else self.left - self.right

    @property
    def split(self) -> Split:
        """The split the problem belongs to, whatever the seed."""
        return "test" if hash_parts("split", self.question) % _TEST_SHARE == 0 else "train"


def draw_problem(seed: int, split: Split, index: int, *, max_operand: int, operations: Sequence[str]) -> Problem:
    """Return problem `index` of a split. Problems may come again at other indices.

    Args:
        seed: Any integer.
        split: "train" or "test".
        index: 0 and up.
        max_operand: Operands are 0 to this; at least 9, so that both splits have problems.
        operations: A selection of "+" and "-".
    """
    attempt = 0
    while True:
        number = hash_parts(seed, split, index, attempt)
        number, left = divmod(number, max_operand + 1)
        number, right = divmod(number, max_operand + 1)
        problem = Problem(left, operations[number % len(operations)], right)
        if problem.split == split:
            return problem
        attempt += 1


def distinct_problems(
    seed: int, split: Split, count: int, *, max_operand: int, operations: Sequence[str]
) -> list[Problem]:
    """Return the first `count` different problems of a split, in the order of `draw_problem`'s indices.

    The split must have that many: see `count_problems`.
    """
    found: dict[Problem, None] = {}
    index = 0
    while len(found) < count:
        found[draw_problem(seed, split, index, max_operand=max_operand, operations=operations)] = None
        index += 1
    return list(found)


def count_problems(split: Split, *, max_operand: int, operations: Sequence[str]) -> int:
    """Return how many different problems a split has."""
    operands = range(max_operand + 1)
    return sum(
        Problem(left, operation, right).split == split
        for left in operands
        for right in operands
        for operation in operations
    )


def hash_parts(*parts: object) -> int:
    """Return 64 bits that depend on every part; the separator keeps (1, 23) apart from (12, 3)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
