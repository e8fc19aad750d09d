"""`metrics.jsonl`: the one record of what a run measured. Trackers, plots and reports are made from it.

One JSON object per line: `{"step": int, "time": unix seconds, "metrics": {name: float}}`.
A metric that does not exist in this mode is absent. JSON has no NaN and no infinity, so the names of such
values go into `non_finite`; the names of values that are no number at all go into `not_numbers`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, SupportsFloat, TypedDict

from pydantic_core import from_json


class MetricsRecord(TypedDict):
    """One line of `metrics.jsonl`."""

    step: int
    """Optimizer step, from 0 (before training)."""
    time: float
    """Unix time in seconds at which the values were known."""
    metrics: dict[str, float]
    """Finite values by name, such as `train/reward`."""
    non_finite: NotRequired[list[str]]
    """Names whose value was NaN or infinite."""
    not_numbers: NotRequired[list[str]]
    """Names whose value was neither a number nor None."""


class MetricsLog:
    """Append records to `metrics.jsonl`, each flushed, so that a reader or a crash sees whole steps.

    Args:
        path: The file. It is created, and a line that a crash cut in half is ended, so that the next
            record does not run into it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        if _ends_inside_a_line(path):
            self._file.write(b"\n")
            self._file.flush()
        self._num_lines = path.read_bytes().count(b"\n")

    def append(self, step: int, metrics: Mapping[str, Any], time: float) -> MetricsRecord:
        """Write one record.

        Args:
            step: Optimizer step.
            metrics: Values by name: numbers, or what turns into one number (NumPy and torch scalars). None is
                the same as absent.
            time: Unix time in seconds.

        Returns:
            The record as written, to hand to a tracker.
        """
        record = to_record(step, metrics, time)
        # ensure_ascii is off for the reader's sake: a metric name may be in any language.
        line = json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        self._num_lines += 1
        return record

    def sync(self) -> tuple[int, int]:
        """Bring the file to the disk, and return its size in bytes and in lines."""
        os.fsync(self._file.fileno())
        return self._file.tell(), self._num_lines

    def close(self) -> None:
        """Close the file; calling it twice does no harm."""
        self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def to_record(step: int, metrics: Mapping[str, Any], time: float) -> MetricsRecord:
    """Sort values into finite numbers, non-finite numbers and things that are no number.

    The last two are named in the record instead of raising: a metric must not end a run.
    """
    finite: dict[str, float] = {}
    non_finite: list[str] = []
    not_numbers: list[str] = []
    for name, value in metrics.items():
        if value is None:
            continue
        number = _to_float(value)
        if number is None:
            not_numbers.append(name)
        elif math.isfinite(number):
            finite[name] = number
        else:
            non_finite.append(name)
    record: MetricsRecord = {"step": int(step), "time": float(time), "metrics": finite}
    if non_finite:
        record["non_finite"] = non_finite
    if not_numbers:
        record["not_numbers"] = not_numbers
    return record


def parse_line(line: str | bytes) -> MetricsRecord | None:
    """Read one line; None for an empty line and for one that a crash cut."""
    try:
        record = from_json(line)  # half the time of json.loads, and a sweep has hundreds of thousands of lines
    except ValueError:
        return None
    if not isinstance(record, dict) or not {"step", "time", "metrics"} <= record.keys():
        return None
    return record  # pyright: ignore[reportReturnType]


def read_metrics(path: Path) -> list[MetricsRecord]:
    """Read all whole records in the order of writing; a cut line is left out.

    Raises:
        FileNotFoundError: There is no such file.
    """
    with path.open("rb") as lines:
        return [record for line in lines if (record := parse_line(line)) is not None]


def last_per_step(records: Iterable[MetricsRecord]) -> list[MetricsRecord]:
    """Merge records of one step, later values winning, and sort by step.

    A run that resumes from an older checkpoint repeats steps; what it measured last is what counts.
    """
    merged: dict[int, MetricsRecord] = {}
    for record in records:
        step = record["step"]
        earlier = merged[step]["metrics"] if step in merged else {}
        merged[step] = {"step": step, "time": record["time"], "metrics": {**earlier, **record["metrics"]}}
    return [merged[step] for step in sorted(merged)]


def _to_float(value: Any) -> float | None:
    if isinstance(value, str) or not isinstance(value, SupportsFloat):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        # Arrays and tensors of several elements have __float__ and refuse in their own ways.
        return None


def _ends_inside_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
