"""Two runs side by side: what was asked for, where they come from, and what came out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_exp.provenance import changed_settings
from grpo_exp.reporting.summary import accuracy_interval
from grpo_exp.rundir import RunDirectory
from grpo_exp.tracking.metrics_log import last_per_step, read_metrics

#: They differ between any two runs and explain nothing.
_NOT_COMPARED = frozenset({"time", "command", "attempt"})
_MAX_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is known of both runs; None where a run does not have it."""

    name: str
    left: Any
    right: Any

    @property
    def differs(self) -> bool:
        """Whether the runs differ here."""
        return self.left != self.right

    def texts(self) -> tuple[str, str]:
        """Return both values as text, each short enough for a column."""
        return _short(self.left), _short(self.right)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The comparison of two runs, in the order in which it is read."""

    settings: list[Row] = field(default_factory=list)
    """Settings that differ, by dotted path."""
    provenance: list[Row] = field(default_factory=list)
    """What else differs: code, versions, machine, data."""
    result: list[Row] = field(default_factory=list)
    """How they ended and what they reached, equal or not."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            part: [{"name": row.name, "left": row.left, "right": row.right} for row in rows]
            for part, rows in (("settings", self.settings), ("provenance", self.provenance), ("result", self.result))
        }


def compare_runs(left: RunDirectory, right: RunDirectory) -> SideBySide:
    """Compare two runs; an unfinished one is compared as far as it came.

    Raises:
        ConfigError: One of the folders holds no run.
    """
    return SideBySide(
        _changed(left.read_config(), right.read_config()),
        _changed(_provenance_of(left), _provenance_of(right)),
        _result_rows(left, right),
    )


def _changed(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Row]:
    found = changed_settings(left, right)
    return [Row(path, *found[path]) for path in sorted(found)]


def _provenance_of(directory: RunDirectory) -> dict[str, Any]:
    if not directory.provenance.is_file():
        return {}
    found = json.loads(directory.provenance.read_text())
    return {key: value for key, value in found.items() if key not in _NOT_COMPARED}


def _result_rows(left: RunDirectory, right: RunDirectory) -> list[Row]:
    both = [_outcome(left), _outcome(right)]
    names = dict.fromkeys([*both[0], *both[1]])
    return [Row(name, both[0].get(name), both[1].get(name)) for name in names]


def _outcome(directory: RunDirectory) -> dict[str, Any]:
    """Return status, steps, held-out accuracies with their intervals, last metrics and time, by name."""
    result = directory.read_result() or {"status": "unfinished"}
    outcome = {key: result[key] for key in ("status", "reason", "steps") if key in result}
    for when, evaluation in (result.get("eval") or {}).items():
        for key in ("accuracy", "greedy_accuracy"):
            interval = accuracy_interval(evaluation, key)
            if evaluation.get(key) is not None:
                outcome[f"{key} {when}"] = round(evaluation[key], 4)
            if interval is not None:
                outcome[f"{key} {when}, 95 %"] = [round(interval.low, 4), round(interval.high, 4)]
    outcome |= _last_metrics(directory)
    if "wall_seconds" in result:
        outcome["wall_seconds"] = round(result["wall_seconds"], 1)
    return outcome


def _last_metrics(directory: RunDirectory) -> dict[str, Any]:
    """Return the latest value of each training curve that people compare, and the step it is from."""
    records = last_per_step(read_metrics(directory.metrics)) if directory.metrics.is_file() else []
    wanted = ("train/reward", "train/completion_length/mean", "train/kl", "train/kl_from_start", "train/entropy",
              "train/frac_reward_zero_std")  # fmt: skip
    found: dict[str, Any] = {}
    for name in wanted:
        values = [(record["step"], record["metrics"][name]) for record in records if name in record["metrics"]]
        if values:
            found[f"{name} at step {values[-1][0]}"] = round(values[-1][1], 4)
    return found


def _short(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" in text:
        return f"{len(text.splitlines())} lines"
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
