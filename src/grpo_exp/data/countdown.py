"""Countdown tasks: numbers, and a target that + - * / make of them, each used exactly once.

A task belongs to the test split by a hash of the task alone, so train and test are disjoint for every seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from grpo_exp.data.arithmetic import Split, hash_parts
from grpo_exp.data.hub import open_table
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.settings.dataset import CountdownDataset

#: One task in ten is held out.
_TEST_SHARE = 10
#: Draws without a new task after which there are no more.
_MAX_DRAWS = 2000
_MIN_TARGET = 10


@dataclass(frozen=True, slots=True)
class Task:
    """Numbers in the order in which they are shown, and what must be made of them."""

    numbers: tuple[int, ...]
    target: int

    @property
    def question(self) -> str:
        """Text of the prompt: what is wanted, and where the answer goes."""
        listed = ", ".join(map(str, self.numbers))
        return (
            f"Make {self.target} out of the numbers {listed}. Use +, -, *, / and parentheses, and each number exactly "
            "once. Think it through between <think> and </think>, then give the expression alone between <answer> and "
            "</answer>, for example <answer>(7 - 3) * 2</answer>."
        )

    @property
    def split(self) -> Split:
        """The split the task belongs to, whatever the seed and the order of the numbers."""
        return "test" if hash_parts("countdown", sorted(self.numbers), self.target) % _TEST_SHARE == 0 else "train"


def load_countdown(settings: CountdownDataset, seed: int) -> PromptData:
    """Return different tasks, a function of the seed; train and test share none.

    Raises:
        DataError: There are fewer tasks of this kind.
    """
    if settings.path is not None:
        return _read(settings)
    return PromptData(
        _rows(settings, seed, "train", settings.train_size), _rows(settings, seed, "test", settings.eval_size)
    )


def _read(settings: CountdownDataset) -> PromptData:
    """Return the tasks of a table with the columns `nums` and `target`, in its order, each once."""
    assert settings.path is not None
    table = open_table("path", settings.path, None, settings.revision, settings.split)
    missing = {"nums", "target"} - set(table.column_names)
    if missing:
        raise DataError(
            f"dataset.path={settings.path}: has no column {' and no '.join(sorted(missing))}; its columns are "
            f"{', '.join(table.column_names)}, and Countdown tasks have nums and target; give another table"
        )
    tasks: dict[tuple[tuple[int, ...], int], Task] = {}
    dropped: Counter[str] = Counter()
    for row in table.select_columns(["nums", "target"]):
        task = _to_task(row["nums"], row["target"])  # type: ignore[call-overload,index]
        key = None if task is None else (tuple(sorted(task.numbers)), task.target)
        if task is None or key is None:
            dropped["without whole numbers in nums and target"] += 1
        elif key in tasks:
            dropped["that repeat an earlier prompt"] += 1
        else:
            tasks[key] = task
    if not tasks:
        raise DataError(
            f"dataset.path={settings.path}: none of its {len(table)} rows has whole numbers in nums and target; give "
            "another table"
        )
    splits: dict[Split, list[Task]] = {"train": [], "test": []}
    for task in tasks.values():
        splits[task.split].append(task)
    return PromptData(
        tuple(to_row(task, settings) for task in splits["train"][: settings.train_size]),
        tuple(to_row(task, settings) for task in splits["test"][: settings.eval_size]),
        dropped,
    )


def _to_task(numbers: Any, target: Any) -> Task | None:
    """Return the task of a row, or None where it is none."""
    values = [*numbers, target] if isinstance(numbers, list) and numbers else []
    if not values or not all(_is_whole(value) for value in values):
        return None
    return Task(tuple(int(number) for number in numbers), int(target))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()


def to_row(task: Task, settings: CountdownDataset) -> PromptRow:
    """Return a task as a row: the target, and the numbers in the column `nums`."""
    prompt = build_prompt(task.question, settings.system_prompt, settings.prompt_template)
    columns = {"nums": list(task.numbers)}
    return PromptRow(prompt, str(task.target), columns, difficulty=float(len(task.numbers)))


def _rows(settings: CountdownDataset, seed: int, split: Split, count: int) -> tuple[PromptRow, ...]:
    found: dict[tuple[tuple[int, ...], int], Task] = {}
    missed = 0
    for task in _draw(settings, seed, split):
        key = (tuple(sorted(task.numbers)), task.target)
        missed = missed + 1 if key in found else 0
        found.setdefault(key, task)
        if len(found) == count:
            break
        if missed == _MAX_DRAWS:
            name = "train_size" if split == "train" else "eval_size"
            raise DataError(
                f"dataset.{name}={count}: only about {len(found)} different tasks were found in this split; use "
                f"dataset.{name}={len(found)} or less, or a larger dataset.max_number"
            )
    return tuple(to_row(task, settings) for task in found.values())


def _draw(settings: CountdownDataset, seed: int, split: Split) -> Iterator[Task]:
    """Yield the tasks of a split without end; they may come again."""
    draws = random.Random(hash_parts("countdown", seed, split))
    while True:
        spread = settings.max_numbers - settings.min_numbers + 1
        count = settings.min_numbers + int(draws.random() * spread)
        numbers = [1 + int(draws.random() * settings.max_number) for _ in range(count)]
        target = _make(list(map(Fraction, numbers)), draws)
        if target is None or target.denominator != 1 or not _MIN_TARGET <= target <= settings.max_target:
            continue
        task = Task(tuple(numbers), int(target))
        if task.split == split:
            yield task


def _make(values: list[Fraction], draws: random.Random) -> Fraction | None:
    """Join two values at random until one is left, so that every task can be solved; None where 0 would divide."""
    while len(values) > 1:
        left = values.pop(int(draws.random() * len(values)))
        right = values.pop(int(draws.random() * len(values)))
        operation = "+-*/"[int(draws.random() * 4)]
        if operation == "/":
            if right == 0:
                return None
            values.append(left / right)
        else:
            values.append(left + right if operation == "+" else left - right if operation == "-" else left * right)
    return values[0]
