"""What a report reads of a run: curves, their ends, thinned curves, and cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_exp.reporting import plots
from grpo_exp.reporting.report.run_data import read_run, thin, to_curves
from grpo_exp.rundir import RunDirectory
from grpo_exp.tracking.metrics_log import MetricsRecord, last_per_step
from unit.run_folder import settings_of


def record(step: int, **metrics: float) -> MetricsRecord:
    return {"step": step, "time": 1.0, "metrics": {f"train/{name}": value for name, value in metrics.items()}}


@pytest.mark.parametrize(
    "records",
    [
        [record(1, a=1.0, b=2.0), record(2, a=3.0), record(3, a=5.0, b=6.0)],
        [record(0, e=0.1), record(1, a=1.0), record(2, a=2.0), record(2, e=0.9)],
        [record(1, a=1.0), record(2, a=2.0), record(1, a=9.0), record(2, a=8.0), record(3, a=7.0)],
        [],
    ],
    ids=["names that come and go", "evaluations", "a run that went back", "nothing"],
)
def test_curves_are_those_of_the_merged_records(records: list[MetricsRecord]) -> None:
    found, expected = to_curves(records), plots.to_curves(last_per_step(records))
    assert found.keys() == expected.keys()
    for name, (steps, values) in expected.items():
        assert found[name][0].tolist() == steps.tolist()
        assert found[name][1].tolist() == values.tolist()


def test_thinned_curves_are_means_of_stretches() -> None:
    """10 steps to at most 4 values: stretches of 3 steps, the last one of 1."""
    steps, values = thin((np.arange(1, 11), np.arange(1.0, 11.0)), 10, max_points=4)
    assert steps.tolist() == [3, 6, 9, 10]
    assert values.tolist() == [2.0, 5.0, 8.0, 10.0]


def test_thinned_curves_with_gaps_keep_their_stretches() -> None:
    steps, values = thin((np.array([1, 2, 8]), np.array([1.0, 3.0, 5.0])), 10, max_points=4)
    assert (steps.tolist(), values.tolist()) == ([3, 9], [2.0, 5.0])


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.path.mkdir()
    lines: list[dict[str, Any]] = [
        {"step": s, "time": 1.0, "metrics": {"train/reward": s / 20, "train/num_tokens": 50.0 * s, "time/step": 9.0}}
        for s in range(1, 21)
    ]
    found.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found.provenance.write_text(json.dumps({"torch": {"devices": ["NVIDIA H100"] * 2}}))
    return found


def test_cost_is_counted_from_the_curves(directory: RunDirectory) -> None:
    """20 steps of 2 prompts x 4 completions; 9 s each on 2 processes are 20 x 9 x 2 / 3600 hours."""
    settings = settings_of(Path("nowhere")).model_dump(mode="json")
    settings["launch"]["num_processes"] = 2
    run = read_run(directory, settings, state="completed")
    assert (run.cost.completions, run.cost.tokens, run.on_gpu) == (160, 1000.0, True)
    assert run.cost.device_hours == pytest.approx(0.1)


def test_the_value_of_a_curve_is_its_last_tenth_and_that_of_a_run_that_ended_early_is_none(
    directory: RunDirectory,
) -> None:
    settings = settings_of(Path("nowhere")).model_dump(mode="json")
    run = read_run(directory, settings, state="completed")
    assert run.value("train/reward") == pytest.approx((19 + 20) / 2 / 20)
    assert run.value("accuracy") is None
    assert read_run(directory, settings, state="stopped").value("train/reward") is None


def test_a_run_that_never_began_has_nothing(tmp_path: Path) -> None:
    settings = settings_of(Path("nowhere")).model_dump(mode="json")
    run = read_run(RunDirectory(tmp_path / "missing"), settings, state="missing")
    assert (run.steps, run.curves, run.findings, run.cost.tokens, run.on_gpu) == (0, {}, [], None, None)
