"""Rows that are held out: from a table of their own, or taken off the training rows by a hash of their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from grpo_exp.data.prompts import PromptData, PromptRow
from grpo_exp.settings.dataset_tables import TableDataset


@dataclass(slots=True)
class SourceRows:
    """Usable rows of one table, and what was left out of it."""

    rows: list[PromptRow] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def split(train: SourceRows, evaluation: SourceRows | None, settings: TableDataset) -> PromptData:
    """Return training and held-out rows that share no prompt.

    Args:
        train: Rows to train on, duplicates already left out where that is asked for.
        evaluation: Rows to hold out; None takes some off the training rows: at most a fifth, and `eval_size`.
        settings: Sizes of both.
    """
    dropped = train.dropped.copy()
    rows = train.rows if settings.train_size is None else train.rows[: settings.train_size]
    if evaluation is None:
        held_out = _hold_out(rows, settings.eval_size)
        keys, taken = {row.question_key for row in held_out}, len(held_out)
    else:
        dropped.update(evaluation.dropped)
        held_out = tuple(evaluation.rows[: settings.eval_size])
        # All of the table, not only what is measured: the rest may be measured later.
        keys, taken = {row.question_key for row in evaluation.rows}, 0
    kept = tuple(row for row in rows if row.question_key not in keys)
    if len(kept) + taken < len(rows):
        dropped["that are held out, too,"] += len(rows) - len(kept) - taken
    return PromptData(kept, held_out, dropped)


def select(source: SourceRows, settings: TableDataset) -> SourceRows:
    """Return the training rows that the settings want: each prompt once, and of the difficulties that are asked for."""
    found = without_duplicates(source) if settings.drop_duplicates else source
    low, high = settings.min_difficulty, settings.max_difficulty
    if low is None and high is None:
        return found
    kept: list[PromptRow] = []
    dropped = found.dropped.copy()
    for row in found.rows:
        if row.difficulty is None:
            dropped["without a difficulty"] += 1
        elif low is not None and row.difficulty < low:
            dropped[f"with a difficulty below {low:g}"] += 1
        elif high is not None and row.difficulty > high:
            dropped[f"with a difficulty above {high:g}"] += 1
        else:
            kept.append(row)
    return SourceRows(kept, dropped)


def without_duplicates(source: SourceRows) -> SourceRows:
    """Return the first row of each prompt, without regard to case and blanks."""
    first: dict[str, PromptRow] = {}
    for row in source.rows:
        first.setdefault(row.question_key, row)
    dropped = source.dropped.copy()
    if len(first) < len(source.rows):
        dropped["that repeat an earlier prompt"] += len(source.rows) - len(first)
    return SourceRows(list(first.values()), dropped)


def _hold_out(rows: Sequence[PromptRow], eval_size: int) -> tuple[PromptRow, ...]:
    """Return at most `eval_size` rows of different questions, at most a fifth, chosen by hash and not by place."""
    first: dict[str, PromptRow] = {}
    for row in sorted(rows, key=lambda row: row.id):
        first.setdefault(row.question_key, row)
    chosen = {row.id for row in list(first.values())[: min(eval_size, len(first) // 5)]}
    return tuple({row.id: row for row in rows if row.id in chosen}.values())
