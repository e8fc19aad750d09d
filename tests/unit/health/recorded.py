"""Recorded runs: the curves in tests/cases/healthy and tests/cases/sick, written by benchmarks/health_case.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_exp.health.finding import Finding
from grpo_exp.health.monitor import HealthMonitor
from grpo_exp.settings.run import RunSettings
from unit.health.histories import settings_of

CASES = Path(__file__).resolve().parents[2] / "cases"


def load_case(path: Path) -> tuple[RunSettings, list[dict[str, Any]]]:
    """Return the settings of a recorded run, and its training steps as `metrics.jsonl` has them."""
    head, *curves = map(json.loads, path.read_text().splitlines())
    values = {name: column for curve in curves for name, column in curve.items()}
    records = []
    for index, step in enumerate(head["steps"]):
        metrics = {name: column[index] for name, column in values.items() if column[index] is not None}
        records.append({"step": step, "metrics": metrics, "non_finite": head["non_finite"].get(str(step), [])})
    return settings_of(*head["words"]), records


def found_in(path: Path) -> list[Finding]:
    """Return what a monitor says about a recorded run."""
    settings, records = load_case(path)
    monitor = HealthMonitor(settings)
    return [
        finding
        for record in records
        for finding in monitor.observe(record["step"], record["metrics"], record["non_finite"])
    ]
