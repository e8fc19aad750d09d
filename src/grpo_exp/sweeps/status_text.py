"""How a sweep stands, in lines for people and as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from grpo_exp.reporting.columns import ABSENT, format_duration
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.plan_text import estimate
from grpo_exp.sweeps.planning import describe_values
from grpo_exp.sweeps.states import TO_RESUME, PointStatus, State, count_states, exit_code_of

#: States whose runs are named one by one without being asked for.
_NAMED: tuple[State, ...] = ("running", "failed", "ended_by_rule", "lost")
#: More lines than these are not read.
_MOST_NAMED = 40


def describe_status(sweep: SweepDirectory, statuses: Sequence[PointStatus], *, every: bool) -> list[str]:
    """Return the lines: counts, the runs that somebody should look at, and what to do next.

    Args:
        sweep: The sweep.
        statuses: Of all its runs.
        every: Name all of them.
    """
    counts = count_states(statuses)
    told = ", ".join(f"{number} {state}" for state, number in counts.items())
    lines = [f"{sweep.path}: {len(statuses)} runs: {told}"]
    named = [s for s in statuses if every or s.state in _NAMED]
    shown = named if every else named[:_MOST_NAMED]
    lines += [_line(status) for status in shown]
    if len(shown) < len(named):
        lines.append(f"  ... and {len(named) - len(shown)} more: --all names them")
    if counts.keys() & TO_RESUME:
        lines += [f"left: {estimate(statuses)}", f"to go on: grpo-exp sweep resume {sweep.path}"]
    if counts.keys() & {"failed", "ended_by_rule"}:
        lines.append(f"to run the failed and ended ones again: grpo-exp sweep retry {sweep.path}")
    return lines


def _line(status: PointStatus) -> str:
    parts = [f"  {status.state:<13} {status.entry.index:>4} {describe_values(status.entry.values)}"]
    if status.steps is not None:
        parts.append(f"step {status.steps}")
    if status.reward is not None:
        parts.append(f"reward {status.reward:.3f}")
    if status.result is not None:
        parts.append(format_duration(status.result["wall_seconds"]))
        after = status.result.get("eval", {}).get("after", {}).get("accuracy")
        parts.append(f"accuracy {ABSENT if after is None else format(after, '.3f')}")
    if status.scheduler is not None:
        parts.append(status.scheduler)
    text = ", ".join(parts)
    return text if status.reason is None or status.state == "completed" else f"{text}: {status.reason}"


def to_json(sweep: SweepDirectory, statuses: Sequence[PointStatus]) -> dict[str, Any]:
    """Return all there is to know, for scripts; what does not exist is absent."""
    return {
        "sweep": str(sweep.path),
        "counts": count_states(statuses),
        "exit_code": exit_code_of(statuses),
        "points": [_point(sweep, status) for status in statuses],
    }


def _point(sweep: SweepDirectory, status: PointStatus) -> dict[str, Any]:
    entry, result = status.entry, status.result or {}
    tracker = sweep.run(entry).tracker
    record = {
        "index": entry.index,
        "point_id": entry.point_id,
        "seed": entry.seed,
        "run_directory": entry.run_directory,
        "overrides": list(entry.overrides),
        "values": dict(entry.values),
        "state": status.state,
        "attempts": status.attempt,
        "steps": status.steps,
        "reward": status.reward,
        "reason": status.reason,
        "wall_seconds": result.get("wall_seconds"),
        "eval": result.get("eval"),
        "scheduler": status.scheduler,
        "tracker": json.loads(tracker.read_text()) if tracker.is_file() else None,
    }
    return {key: value for key, value in record.items() if value is not None}
