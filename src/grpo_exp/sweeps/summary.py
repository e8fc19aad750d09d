"""`summary.csv`: one line per run of a sweep."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_exp.rundir import write_text
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.states import PointStatus

_BEFORE_AXES = ("index", "point_id", "seed")
_AFTER_AXES = (
    "status", "steps", "accuracy_before", "accuracy_after", "greedy_accuracy_before", "greedy_accuracy_after",
    "wall_seconds", "attempts", "run_directory", "error",
)  # fmt: skip


def write_summary(sweep: SweepDirectory, statuses: Sequence[PointStatus]) -> None:
    """Write the table; a reader sees the old one or the whole new one."""
    axes = [key for key in dict.fromkeys(key for s in statuses for key in s.entry.values) if key != "seed"]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*_BEFORE_AXES, *axes, *_AFTER_AXES], restval="", lineterminator="\n")
    writer.writeheader()
    settings = sweep.read_all_settings()
    for status in statuses:
        row = to_row(status, axes, settings[status.entry.index])
        known = {key: value for key, value in row.items() if value is not None}
        writer.writerow(known)
    write_text(sweep.summary, out.getvalue())


def to_row(status: PointStatus, axes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line; what is not known is None.

    Args:
        status: How the run stands.
        axes: Settings that the sweep varies.
        settings: Of the run; a call that did not vary one of the axes has its value from here.
    """
    entry, result = status.entry, status.result or {}
    evaluation = result.get("eval", {})
    is_bad = status.state not in {"completed", "running", "queued", "missing"}
    return {
        "index": entry.index,
        "point_id": entry.point_id,
        "seed": entry.seed,
        **axis_values(status, axes, settings),
        "status": status.state,
        "steps": status.steps,
        **{
            f"{key}_{when}": evaluation.get(when, {}).get(key)
            for key in ("accuracy", "greedy_accuracy")
            for when in ("before", "after")
        },
        "wall_seconds": result.get("wall_seconds"),
        "attempts": status.attempt,
        "run_directory": entry.run_directory,
        "error": status.reason if is_bad else None,
    }


def axis_values(status: PointStatus, axes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run has on the axes of its sweep, null as text; None for what is not known."""
    given = {key: "null" if value is None else value for key, value in status.entry.values.items()}
    return {axis: given[axis] if axis in given else _look_up(settings, axis) for axis in axes}


def _look_up(settings: Mapping[str, Any], path: str) -> Any:
    """Return a setting, None for one that is not there and for a group: which option it was is not in the settings."""
    node: Any = settings
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return None if isinstance(node, Mapping) else node
