"""What scorers read besides the completions: the data set's columns, one value per completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_exp.errors import ConfigError, DataError
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.score import Score

Columns = Mapping[str, Sequence[Any]]
"""The data set's columns, one value per completion."""
BatchScorer = Callable[[str, Sequence[Completion], Columns], list[Score]]
"""Scores a batch, given the component's name, the completions and the columns."""


def read_targets(name: str, kind: str, columns: Columns) -> Sequence[Any]:
    """Return the column `target`.

    Raises:
        ConfigError: There is none.
    """
    if "target" not in columns:
        raise ConfigError(
            f"reward.components.{name}: the data set has no column 'target' (it has {sorted(columns)}); "
            f"kind={kind} compares each answer with it; "
            "name the column that holds the right answer: dataset.target_column=NAME, or column.target=NAME of `score`"
        )
    return columns["target"]


def read_prefilled(completions: Sequence[Completion], columns: Columns) -> list[bool]:
    """Return the column `prefilled`; where there is none, or null, no prompt ends inside the reasoning.

    Raises:
        DataError: A value is no boolean: the text `false` would count as true.
    """
    values = columns.get("prefilled", [None] * len(completions))
    for row, value in enumerate(values, start=1):
        if value is not None and not isinstance(value, bool):
            raise DataError(
                f"prefilled: row {row} holds {value!r}; the column tells whether the prompt already opened the "
                "reasoning, as true, false or null; write one of these, without quotes"
            )
    return [value is True for value in values]


def read_token_counts(name: str, kind: str, columns: Columns) -> list[int]:
    """Return the length of each completion in tokens: of `completion_ids`, as TRL hands over, or from `num_tokens`.

    Raises:
        ConfigError: Neither column is there.
        DataError: A value is missing or no count.
    """
    if "completion_ids" in columns:
        column, counts = "completion_ids", [_length(ids) for ids in columns["completion_ids"]]
    elif "num_tokens" in columns:
        column, counts = "num_tokens", list(columns["num_tokens"])
    else:
        raise ConfigError(
            f"reward.components.{name}: there is no column 'completion_ids' or 'num_tokens' (there is "
            f"{sorted(columns)}); kind={kind} counts tokens, never characters; add num_tokens to the rows, or leave "
            "the component out"
        )
    wrong = [count for count in counts if not isinstance(count, int) or isinstance(count, bool) or count < 0]
    if wrong:
        raise DataError(
            f"reward.components.{name}: the column {column!r} holds {wrong[0]!r}; kind={kind} wants the number of "
            "tokens, 0 or more, in every row; correct the rows"
        )
    return counts


def _length(ids: Any) -> Any:
    """Return how many ids there are; what is no list is handed back, to be refused by name."""
    return len(ids) if isinstance(ids, Sequence) and not isinstance(ids, str | bytes) else ids
