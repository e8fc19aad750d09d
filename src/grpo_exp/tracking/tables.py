"""Tables of completions, as they lie in `completions/*.parquet`, for trackers that show tables."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE_NAME = re.compile(r"(?P<part>[A-Za-z]\w*?)_(?P<step>\d+)")


class UnreadableTableError(Exception):
    """A file is no whole parquet file, and will not become one by itself."""


@dataclass(frozen=True)
class CompletionsTable:
    """The rows of one file, and what they are."""

    name: str
    """Name of the file without its ending, such as `train_000010`."""
    part: str
    """What the rows belong to: `train` or `eval`, or the whole name where it does not say."""
    step: int
    """Optimizer step of the rows."""
    columns: list[str]
    """Names of the columns."""
    rows: list[list[Any]]
    """Values row by row; None where there is none, also for NaN and infinity, which JSON does not have."""


def read_table(path: Path) -> CompletionsTable:
    """Read a parquet file named like `train_000010.parquet`.

    Raises:
        OSError: The file is gone, or the disk does not give it.
        UnreadableTableError: It is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        # Not `read_table`, which takes a part of the path such as `key=value` for a column.
        table = pyarrow.parquet.ParquetFile(path).read()
        columns = [column.to_pylist() for column in table.columns]
    except (OSError, pyarrow.ArrowException, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnreadableTableError(f"{path.name} is no readable parquet file") from error
    rows = [[_plain(value) for value in row] for row in zip(*columns, strict=True)]
    match = _FILE_NAME.fullmatch(path.stem)
    part, step = (path.stem, 0) if match is None else (match["part"], int(match["step"]))
    return CompletionsTable(path.stem, part, step, list(table.column_names), rows)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
