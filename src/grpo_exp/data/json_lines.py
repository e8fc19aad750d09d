"""Files with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_exp.errors import DataError

#: Files of these names that are not JSON lines are what their names say.
_OTHER_FORMATS = {
    ".parquet": "parquet", ".csv": "CSV", ".tsv": "TSV", ".arrow": "Arrow", ".feather": "Feather", ".gz": "gzip",
    ".zst": "zstandard", ".xlsx": "Excel",
}  # fmt: skip


def read_objects(setting: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each line that is not blank, from 1, and its object.

    Args:
        setting: What named the file, as the user typed it; for messages.
        path: The file, UTF-8.

    Raises:
        DataError: The file cannot be read, or a line is no JSON object.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{setting}={path}: is not a file; give a file with one JSON object a line")
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, _parse(setting, path, number, line)
    except OSError as error:
        raise DataError(f"{setting}={path}: cannot be read ({error.strerror}); give an existing file") from error
    except UnicodeDecodeError as error:
        kind = _OTHER_FORMATS.get(path.suffix.lower())
        what = f"not UTF-8 text ({error.reason})" if kind is None else f"a {kind} file by its name, not JSON lines"
        raise DataError(f"{setting}={path}: is {what}; convert it") from error


def _parse(setting: str, path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # also: numbers too long, brackets too deep
        kind = _OTHER_FORMATS.get(path.suffix.lower())
        if number == 1 and kind is not None:
            raise DataError(
                f"{setting}={path}: is a {kind} file by its name, and its first line is no JSON; one JSON object a "
                "line is wanted; convert it"
            ) from error
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(";")[0]
        raise DataError(f"{setting}={path}: line {number} is not JSON ({reason}); correct it") from error
    if not isinstance(row, dict):
        raise DataError(
            f"{setting}={path}: line {number} is a {type(row).__name__}, not an object; write one object per line"
        )
    return row
