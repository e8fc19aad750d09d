"""What the points of a sweep cost, and which are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_exp.reporting.report.analysis import PointSummary
from grpo_exp.reporting.report.run_data import RunData
from grpo_exp.reporting.report.sweep_data import SweepData


@dataclass(frozen=True, slots=True)
class PointCost:
    """Mean cost of the runs of a point that came to their end."""

    value: float


def cost_units(data: SweepData) -> dict[str, str]:
    """Return the field of `RunCost` for each unit, by the unit's title."""
    devices = {run.on_gpu for point in data.points for run in point.runs if run.on_gpu is not None}
    hours = {frozenset({True}): "GPU-hours", frozenset({False}): "CPU process-hours"}.get(
        frozenset(devices), "device-hours"
    )
    return {"completions": "completions", "tokens": "tokens", hours: "device_hours"}


def costs_of(summaries: Sequence[PointSummary], unit_field: str) -> list[PointCost] | None:
    """Return the costs of points, or None where one of them has not measured any."""
    costs = []
    for summary in summaries:
        found = [_cost(run, unit_field) for run in summary.point.runs if run.state == "completed"]
        known = [cost for cost in found if cost is not None]
        if not known:
            return None
        costs.append(PointCost(sum(known) / len(known)))
    return costs


def total_cost(data: SweepData, unit_field: str) -> float:
    """Return what all runs took together, those included that came to no end."""
    runs = (run for point in data.points for run in point.runs)
    return sum(cost for run in runs if (cost := _cost(run, unit_field)) is not None)


def _cost(run: RunData, unit_field: str) -> float | None:
    return {
        "completions": run.cost.completions,
        "tokens": run.cost.tokens,
        "device_hours": run.cost.device_hours,
    }[unit_field]
