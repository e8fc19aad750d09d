"""Completions as a parquet file: one row each, flat columns, readable by any tool and by `grpo-exp score`.

Columns: step, group, kept, prompt, completion, target, `rewards/NAME` and `reasons/NAME` for each component, reward,
advantage, length, truncated, `behaviours/NAME`, characters_left_out, `columns/NAME` (JSON) for further columns of the
data set. A value that does not exist is null.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.evaluation.behaviours import BEHAVIOURS
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo

if TYPE_CHECKING:
    import pyarrow

# pyarrow is imported where it is used: it costs half a second that most commands do not need.

#: Key of the file's own metadata that marks it as one of these tables.
_MARK = b"grpo_exp.completions"
_REWARDS, _REASONS, _BEHAVIOURS, _COLUMNS = "rewards/", "reasons/", "behaviours/", "columns/"


def write_table(path: Path, rows: Sequence[CompletionRow], info: TableInfo) -> None:
    """Write rows so that a reader sees the old file or the whole new one.

    Raises:
        OSError: It cannot be written; nothing is left of it.
    """
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    table = to_arrow(rows, info)
    # The name does not end in .parquet: nobody takes it for a table.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o644)  # mkstemp made it private; a group looks at its runs together
            pyarrow.parquet.write_table(table, stream, compression="zstd")
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_arrow(rows: Sequence[CompletionRow], info: TableInfo) -> pyarrow.Table:
    """Return rows as a table with the same types whatever is in them."""
    import pyarrow

    text, number, whole, truth = pyarrow.string(), pyarrow.float64(), pyarrow.int64(), pyarrow.bool_()
    several = any(not isinstance(row.target, str) for row in rows)
    components = list(dict.fromkeys(name for row in rows for name in row.scores))
    extra = list(dict.fromkeys(name for row in rows for name in row.columns))
    fields: dict[str, tuple[Any, list[Any]]] = {
        "step": (whole, [info.step] * len(rows)),
        "group": (whole, [row.group for row in rows]),
        "kept": (truth, [row.kept for row in rows]),
        "prompt": (text, [_clean(row.prompt) for row in rows]),
        "completion": (text, [_clean(row.completion) for row in rows]),
        "target": (pyarrow.list_(text) if several else text, [_target(row.target, several=several) for row in rows]),
    }
    for name in components:
        fields[f"{_REWARDS}{name}"] = (number, [row.scores[name].value for row in rows])
        fields[f"{_REASONS}{name}"] = (text, [_clean(row.scores[name].reason) for row in rows])
    fields |= {
        "reward": (number, [row.reward for row in rows]),
        "advantage": (number, [row.advantage for row in rows]),
        "length": (whole, [row.length for row in rows]),
        "truncated": (truth, [row.truncated for row in rows]),
        "characters_left_out": (whole, [row.characters_left_out for row in rows]),
    }
    for name in BEHAVIOURS:
        fields[f"{_BEHAVIOURS}{name}"] = (text, [_clean(row.behaviours.get(name)) for row in rows])
    for name in extra:
        fields[f"{_COLUMNS}{name}"] = (text, [_clean(row.columns.get(name)) for row in rows])
    schema = pyarrow.schema(
        [(name, kind) for name, (kind, _) in fields.items()], metadata={_MARK: json.dumps(asdict(info))}
    )
    return pyarrow.table({name: values for name, (_, values) in fields.items()}, schema=schema)


def info_of(table: pyarrow.Table) -> TableInfo | None:
    """Say what a table is of; None where it is not one of ours."""
    metadata = table.schema.metadata or {}
    return TableInfo(**json.loads(metadata[_MARK])) if _MARK in metadata else None


def from_arrow(table: pyarrow.Table) -> list[dict[str, Any]]:
    """Return the rows as `grpo-exp score` knows them.

    They hold `components` ({name: {value, reason}}), `behaviours` ({name: snippet}), `num_tokens`, which is the length,
    and the further columns of the data set under their own names.
    """
    return [_from_flat(row) for row in table.to_pylist()]


def _from_flat(flat: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in flat.items() if "/" not in name}
    row["num_tokens"] = row.pop("length")
    row["components"] = {
        name: {"value": value, "reason": flat[f"{_REASONS}{name}"]} for name, value in _below(_REWARDS, flat).items()
    }
    row["behaviours"] = {name: text for name, text in _below(_BEHAVIOURS, flat).items() if text is not None}
    extra = {name: json.loads(text) for name, text in _below(_COLUMNS, flat).items() if text is not None}
    return {**extra, **row}


def _below(prefix: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}


def _target(target: str | Sequence[str], *, several: bool) -> str | list[str]:
    """Return a target as its column wants it: where one is a list of spellings, all are."""
    if isinstance(target, str):
        return [_clean(target)] if several else _clean(target)
    return [_clean(spelling) for spelling in target]


def _clean(value: Any) -> Any:
    """Return a text that UTF-8 can hold: a lone surrogate becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
