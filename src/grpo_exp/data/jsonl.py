"""Rows from a local file with one JSON object per line."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from grpo_exp.data.json_lines import read_objects
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.rewards.extraction import find_box
from grpo_exp.settings.dataset import JsonlDataset


def load_jsonl(settings: JsonlDataset) -> PromptData:
    """Read, map and check a file; rows that cannot be used are counted by reason.

    Raises:
        DataError: The file, a column or every row is unusable.
    """
    assert settings.path is not None  # JsonlDataset refuses a null path
    dropped: Counter[str] = Counter()
    rows = _usable_rows("path", Path(settings.path), settings, dropped)
    if settings.train_size is not None:
        rows = rows[: settings.train_size]
    if settings.eval_path is not None:
        evaluation = _usable_rows("eval_path", Path(settings.eval_path), settings, dropped)[: settings.eval_size]
        kept = {_key(row) for row in evaluation}
        train = tuple(row for row in rows if _key(row) not in kept)
        if len(train) < len(rows):
            dropped["that are held out, too,"] += len(rows) - len(train)
        return PromptData(train, tuple(evaluation), dropped)
    held_out = _held_out_keys(rows, settings.eval_size)
    train = tuple(row for row in rows if _key(row) not in held_out)
    evaluation = tuple({_key(row): row for row in rows if _key(row) in held_out}.values())
    return PromptData(train, evaluation, dropped)


def _held_out_keys(rows: list[PromptRow], eval_size: int) -> set[str]:
    """Return at most `eval_size` prompts, at most a fifth of the file, chosen by hash and not by place."""
    keys = sorted({_key(row) for row in rows})
    return set(keys[: min(eval_size, len(keys) // 5)])


def _key(row: PromptRow) -> str:
    return hashlib.sha256(json.dumps(row.prompt, sort_keys=True).encode()).hexdigest()


def _usable_rows(key: str, path: Path, settings: JsonlDataset, dropped: Counter[str]) -> list[PromptRow]:
    """Read one file; `key` is the setting that named it. What is left out is added to `dropped`."""
    usable: list[PromptRow] = []
    left_out: Counter[str] = Counter()
    total = 0
    for number, row in read_objects(f"dataset.{key}", path):
        if number == 1 or not usable:
            _check_columns(path, row, settings)
        total += 1
        result = _convert(row, settings)
        if isinstance(result, str):
            left_out[result] += 1
        else:
            usable.append(result)
    if not usable:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "the file is empty"
        raise DataError(f"dataset.{key}={path}: none of its {total} rows can be used ({reasons}); correct the file")
    dropped.update(left_out)
    return usable


def _check_columns(path: Path, row: dict[str, Any], settings: JsonlDataset) -> None:
    faults = [
        f"dataset.{key}={column}: {path} has no column {column!r}; its columns are {', '.join(sorted(row))}; "
        f"name one of them with dataset.{key}=COLUMN"
        for key, column in (
            ("prompt_column", settings.prompt_column),
            ("target_column", settings.target_column),
            *(("extra_columns", column) for column in settings.extra_columns),
        )
        if column is not None and column not in row
    ]
    if faults:
        raise DataError(faults)


def _convert(row: dict[str, Any], settings: JsonlDataset) -> PromptRow | str:
    """Return a row, or the reason why it cannot be used."""
    prompt = row.get(settings.prompt_column)
    if prompt is None or not _is_prompt(prompt):
        return "without a prompt"
    built = build_prompt(prompt, settings.system_prompt)
    columns = {name: row.get(name) for name in settings.extra_columns}
    if settings.target_column is None:
        return PromptRow(built, "", columns)
    target = row.get(settings.target_column)
    spellings = target if isinstance(target, list) else [target]
    texts = [_target_text(spelling, settings.target_format) for spelling in spellings]
    kept = tuple(text for text in texts if text)
    if not kept:
        return "without a target"
    return PromptRow(built, kept if isinstance(target, list) else kept[0], columns)


def _is_prompt(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and isinstance(m.get("content"), str) and "role" in m for m in value)
    )


def _target_text(value: Any, target_format: str) -> str | None:
    if value is None or isinstance(value, bool | dict | list):
        return None
    if isinstance(value, float) and not math.isfinite(value):  # pandas writes NaN for an empty cell
        return None
    text = str(value).strip()
    if target_format == "gsm8k":
        _, marker, tail = text.rpartition("####")
        return tail.strip().replace(",", "") if marker else None
    if target_format == "boxed":
        return find_box(text)
    return text or None
