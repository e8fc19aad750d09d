"""Completions in files: JSON lines, parquet, or those of a run; read as rows, written as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.data.json_lines import read_objects
from grpo_exp.errors import DataError
from grpo_exp.evaluation.completion_table import from_arrow, info_of
from grpo_exp.rewards.columns import Columns, read_prefilled
from grpo_exp.rewards.completion import Completion, read_completion

_PARQUET_MAGIC = b"PAR1"
#: What `score` itself adds to a row; in its input they are the result of an earlier time.
RESULT_COLUMNS = ("reward", "components")


DEFAULT_TARGET = "target"


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Where the rows hold what is scored.

    Args:
        completion: Column with the completion.
        target: Column with the right answer.
    """

    completion: str = "completion"
    target: str = DEFAULT_TARGET


def read_rows(setting: str, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, or of all files of a run's folder `completions/` in the order of their names.

    Args:
        setting: What named the path, as the user typed it; for messages.
        path: A file with JSON lines, a parquet file, or a run's folder.

    Raises:
        DataError: There is nothing to read, or it cannot be read.
    """
    rows = [row for file in _files(setting, path) for row in _read_file(setting, file)]
    if not rows:
        raise DataError(f"{setting}={path}: holds no rows; give a file with at least one completion")
    return rows


def _files(setting: str, path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in (path / "completions").glob("*") if file.suffix in {".jsonl", ".parquet"})
    if not found:
        raise DataError(
            f"{setting}={path}: is a folder without completions/*.jsonl or completions/*.parquet; give a run's folder "
            "or a file"
        )
    return found


def _read_file(setting: str, path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            is_parquet = stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    except OSError as error:
        raise DataError(f"{setting}={path}: cannot be read ({error.strerror}); give an existing file") from error
    if is_parquet:
        return _read_parquet(setting, path)
    rows: list[dict[str, Any]] = []
    for number, row in read_objects(setting, path):
        if number != len(rows) + 1:
            raise DataError(
                f"{setting}={path}: line {len(rows) + 1} is empty; every line of the output stands for the same line "
                "of the input; remove empty lines"
            )
        rows.append(row)
    return rows


def _read_parquet(setting: str, path: Path) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path).read()
        return table.to_pylist() if info_of(table) is None else from_arrow(table)
    except (OSError, pyarrow.ArrowException, ValueError) as error:  # ValueError: damaged text
        reason = str(error).partition("\n")[0]
        raise DataError(f"{setting}={path}: is no readable parquet file ({reason}); write it again") from error


def to_columns(
    rows: Sequence[Mapping[str, Any]], names: ColumnNames, *, source: str = "input"
) -> tuple[list[Completion], Columns]:
    """Return the completions and the columns that components see, by the names they expect.

    A row that lacks a column has None in it. `prompt` is handed over as `prompts`, as TRL does.

    Args:
        rows: At least one.
        names: Where they hold completion and target.
        source: What the rows are called in messages.

    Raises:
        DataError: A row has no completion that can be read, or `prefilled` is no boolean, or no row has a target of
            the name that was asked for.
    """
    for number, row in enumerate(rows, start=1):
        if names.completion not in row:
            raise DataError(
                f"column.completion={names.completion}: row {number} has no such column (it has "
                f"{', '.join(sorted(row)) or 'none'}); every row holds a completion; name its column with "
                "column.completion=NAME"
            )
        _check_completion(row[names.completion], f"{source}: row {number}, column {names.completion!r}")
    keys = dict.fromkeys(key for row in rows for key in row)
    if names.target not in keys and names.target != DEFAULT_TARGET:
        raise DataError(
            f"column.target={names.target}: no row has such a column (there are {', '.join(sorted(keys))}); "
            "name the column that holds the right answer"
        )
    hidden = {names.completion, "prompt", "completion", "completions", *RESULT_COLUMNS}
    columns = {key: [row.get(key) for row in rows] for key in keys if key not in hidden}
    if "prompt" in keys and "prompts" not in keys:
        columns["prompts"] = [row.get("prompt") for row in rows]
    if names.target in keys:
        columns["target"] = [row.get(names.target) for row in rows]
    completions = [row[names.completion] for row in rows]
    read_prefilled(completions, columns)  # refused here, where the number of the row is known
    return completions, columns


def _check_completion(completion: Any, place: str) -> None:
    if isinstance(completion, str | list | tuple | None):
        try:
            read_completion(completion)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
    else:
        raise DataError(
            f"{place} holds {str(completion)[:80]!r}, of type {type(completion).__name__}; a completion is text, a "
            "list of messages with 'role' and 'content', or null; write one of these, or name another column with "
            "column.completion=NAME"
        )


def check_writable(path: Path) -> None:
    """Find out whether `write_rows` will be able to write, before work is done that would be lost.

    Raises:
        DataError: It will not.
    """
    part = _part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise DataError(_unwritable(path, error)) from error


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line; a reader sees the old file or the whole new one.

    Numbers that are not finite become null and what JSON does not know (dates, bytes) becomes text.

    Raises:
        DataError: The file cannot be written.
    """
    part = _part_of(path)
    try:
        with part.open("w", encoding="utf-8") as stream:
            stream.writelines(to_line(row) for row in rows)
        part.replace(path)
    except OSError as error:
        raise DataError(_unwritable(path, error)) from error
    finally:
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _unwritable(path: Path, error: OSError) -> str:
    return f"output={path}: cannot be written ({error.strerror}); choose another file"


def to_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON."""
    try:
        return json.dumps(row, allow_nan=False, default=str) + "\n"
    except ValueError:
        return json.dumps(_finite(row), allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return value
