"""Countdown tasks that are made here: they can be solved, they differ, and train and test share none."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.data.countdown import Task, load_countdown
from grpo_exp.errors import DataError
from grpo_exp.settings.dataset import CountdownDataset


def settings(**fields: object) -> CountdownDataset:
    return CountdownDataset.model_validate({"kind": "countdown", "train_size": 60, "eval_size": 15, **fields})


def reachable(values: tuple[Fraction, ...]) -> set[Fraction]:
    """Return all that the four operations make of the values, each used once, by trying everything."""
    if len(values) == 1:
        return {values[0]}
    found: set[Fraction] = set()
    for i, j in combinations(range(len(values)), 2):
        rest = tuple(value for place, value in enumerate(values) if place not in {i, j})
        a, b = values[i], values[j]
        results = {a + b, a - b, b - a, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for result in results:
            found |= reachable((*rest, result))
    return found


def key(numbers: list[int], target: str) -> tuple[tuple[int, ...], str]:
    return tuple(sorted(numbers)), target


def test_every_task_can_be_solved_and_keeps_to_the_bounds() -> None:
    data = load_countdown(settings(train_size=25, eval_size=5), seed=0)
    for row in (*data.train, *data.evaluation):
        numbers = row.columns["nums"]
        assert 3 <= len(numbers) <= 4
        assert all(1 <= number <= 99 for number in numbers)
        assert 10 <= int(str(row.target)) <= 100
        assert int(str(row.target)) in reachable(tuple(map(Fraction, numbers)))


def test_tasks_differ_and_no_held_out_one_is_ever_trained_on() -> None:
    """Held out by a hash of the task, whatever the seed: the training tasks of one seed are none of another's test."""
    sets = [load_countdown(settings(), seed) for seed in (0, 1)]
    train = [{key(row.columns["nums"], str(row.target)) for row in data.train} for data in sets]
    held_out = [{key(row.columns["nums"], str(row.target)) for row in data.evaluation} for data in sets]
    assert [len(found) for found in (*train, *held_out)] == [60, 60, 15, 15]
    assert not (train[0] | train[1]) & (held_out[0] | held_out[1])
    assert train[0] != train[1]
    assert load_countdown(settings(), 0).fingerprint() == sets[0].fingerprint()


def test_order_of_the_numbers_does_not_move_a_task_to_the_other_split() -> None:
    assert len({Task(numbers, 30).split for numbers in ((3, 5, 2), (5, 3, 2), (2, 3, 5))}) == 1


def test_kind_with_too_few_tasks_is_refused() -> None:
    with pytest.raises(DataError, match=r"dataset.train_size=5000: only about \d+ different tasks were found"):
        load_countdown(settings(min_numbers=2, max_numbers=2, max_number=9, max_target=12, train_size=5000), 0)


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_of_a_table_that_are_no_tasks_are_left_out_and_counted(tmp_path: Path) -> None:
    """40 tasks, one of them again in another order, and four rows that lack something."""
    tasks: list[dict[str, Any]] = [{"nums": [1, 2, number], "target": number + 3} for number in range(3, 43)]
    broken = [{"nums": None, "target": 3}, {"nums": [], "target": 3}, {"nums": [1, 2], "target": None},
              {"nums": [1, None], "target": 3}]  # fmt: skip
    path = write(tmp_path, [*tasks, {"nums": [2, 1, 5], "target": 8}, *broken])
    data = load_countdown(settings(path=path), 0)
    assert len(data.train) + len(data.evaluation) == 40
    assert data.dropped == {"that repeat an earlier prompt": 1, "without whole numbers in nums and target": 4}


def test_table_with_numbers_as_text_is_refused(tmp_path: Path) -> None:
    """Read letter by letter, "[1, 2]" would be six numbers."""
    path = write(tmp_path, [{"nums": "[1, 2]", "target": 3}] * 3)
    with pytest.raises(DataError, match="none of its 3 rows has whole numbers in nums and target"):
        load_countdown(settings(path=path), 0)
