"""Rows from a local file with one JSON object per line."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.data.columns import check_columns, to_prompt_row
from grpo_exp.data.json_lines import read_objects
from grpo_exp.data.prompts import PromptData
from grpo_exp.data.splits import SourceRows, select, split
from grpo_exp.errors import DataError
from grpo_exp.settings.dataset import JsonlDataset


def load_jsonl(settings: JsonlDataset) -> PromptData:
    """Read, map and check a file; rows that cannot be used are counted by reason.

    Raises:
        DataError: The file, a column or every row is unusable.
    """
    assert settings.path is not None  # JsonlDataset refuses a null path
    train = select(_usable_rows("path", Path(settings.path), settings), settings)
    evaluation = None if settings.eval_path is None else _usable_rows("eval_path", Path(settings.eval_path), settings)
    return split(train, evaluation, settings)


def _usable_rows(key: str, path: Path, settings: JsonlDataset) -> SourceRows:
    """Read one file; `key` is the setting that named it."""
    found = SourceRows()
    total = 0
    for number, row in read_objects(f"dataset.{key}", path):
        if number == 1 or not found.rows:
            check_columns(str(path), row, row, settings)
        total += 1
        result = to_prompt_row(row, settings)
        if isinstance(result, str):
            found.dropped[result] += 1
        else:
            found.rows.append(result)
    if not found.rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in found.dropped.items()) or "the file is empty"
        raise DataError(f"dataset.{key}={path}: none of its {total} rows can be used ({reasons}); correct the file")
    return found
