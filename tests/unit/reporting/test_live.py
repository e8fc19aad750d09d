"""The live view of a run is made from the two files that its workers write."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from grpo_exp.reporting.live import LiveRun
from grpo_exp.rundir import RunDirectory
from grpo_exp.tracking.metrics_log import MetricsLog


def test_a_run_is_shown_from_its_files_as_they_come_and_go(tmp_path: Path) -> None:
    out = io.StringIO()
    metrics, status = tmp_path / "metrics.jsonl", tmp_path / "status.json"
    console = Console(file=out, width=140)
    with LiveRun(metrics, status, console, total_steps=2, component_names=["format"]) as live:
        live.refresh()
        status.write_text('{"phase": "preparing the model", "done": 0, "total": 0}')
        live.refresh()
        live.refresh()
        with MetricsLog(metrics) as log:
            log.append(1, {"train/reward": 0.5}, 1.0)
            status.unlink()
            live.refresh()
            live.message("stopping after this step")
            log.append(2, {"train/reward": 0.75}, 3.0)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["starting the workers", "preparing the model"]
    assert [line.split() for line in lines[2:4]] == [["step", "reward", "ETA"], ["1/2", "0.500", "-"]]
    assert lines[4] == "stopping after this step"
    assert [line.split() for line in lines[5:]] == [["2/2", "0.750", "0:00"]]


def test_explanations_and_notes_are_shown_as_they_are_written(tmp_path: Path) -> None:
    """Only those of this attempt, and only these two kinds: findings are told at the end."""
    out = io.StringIO()
    directory = RunDirectory(tmp_path)
    directory.add_event("explanation", "told by an earlier attempt", step=1)
    console = Console(file=out, width=140)
    metrics, status = directory.metrics, directory.status
    with LiveRun(metrics, status, console, total_steps=2, component_names=[], events=directory.events) as live:
        live.refresh()
        directory.add_event("note", "the model has [dropout]")
        directory.add_event("explanation", "loss is near 0", step=1)
        directory.add_event("warning", "groups are dead", step=1)
        live.refresh()
        live.refresh()
    assert out.getvalue().splitlines() == [
        "starting the workers",
        "note: the model has [dropout]",
        "note (step 1): loss is near 0",
    ]
