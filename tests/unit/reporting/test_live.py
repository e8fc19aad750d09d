"""The live view of a run is made from the two files that its workers write."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_exp.reporting.live import LiveRun
from grpo_exp.rundir import RunDirectory, begin_attempt
from grpo_exp.tracking.metrics_log import MetricsLog


def lines_of(out: io.StringIO) -> list[str]:
    """Return what was printed without the time in front of each line."""
    return [line[21:] for line in out.getvalue().splitlines()]


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
    lines = lines_of(out)
    assert lines[:2] == ["starting the workers", "preparing the model"]
    assert [line.split() for line in lines[2:4]] == [["step", "reward", "ETA"], ["1/2", "0.500", "-"]]
    assert lines[4] == "stopping after this step"
    assert [line.split() for line in lines[5:]] == [["2/2", "0.750", "0:00"]]


def test_explanations_and_notes_are_shown_as_they_are_written(tmp_path: Path) -> None:
    """Only those of this attempt; a warning that no rule has found is told at the end."""
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
    assert lines_of(out) == [
        "starting the workers",
        "note: the model has [dropout]",
        "note (step 1): loss is near 0",
    ]


def test_what_is_there_already_is_shown_to_somebody_who_comes_later(tmp_path: Path) -> None:
    """All measured steps, and of the events those of the newest attempt."""
    out, directory = io.StringIO(), RunDirectory(tmp_path)
    begin_attempt(directory)
    directory.add_event("note", "of the first attempt")
    begin_attempt(directory)
    directory.add_event("note", "of the second attempt")
    with MetricsLog(directory.metrics) as log:
        log.append(1, {"train/reward": 0.5}, 1.0)
        log.append(2, {"train/reward": 0.75}, 3.0)
    options = {"total_steps": 2, "component_names": [], "events": directory.events, "so_far": 2}
    with LiveRun(directory.metrics, directory.status, Console(file=out, width=140), **options):  # type: ignore[arg-type]
        pass
    assert [line.split()[:2] for line in lines_of(out)] == [
        ["step", "reward"], ["1/2", "0.500"], ["2/2", "0.750"], ["note:", "of"]
    ]  # fmt: skip
    assert "of the second attempt" in out.getvalue()
    assert "of the first attempt" not in out.getvalue()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["cut back in place", "replaced by a new file"])
def test_curves_that_were_cut_back_go_on_with_what_is_new(tmp_path: Path, *, is_replaced: bool) -> None:
    """Steps 1 to 3 are shown; a resume goes back to step 1 and measures step 2 again, later."""
    out, directory = io.StringIO(), RunDirectory(tmp_path)
    console = Console(file=out, width=140)
    with LiveRun(directory.metrics, directory.status, console, total_steps=3, component_names=[]) as live:
        with MetricsLog(directory.metrics) as log:
            for step in (1, 2, 3):
                log.append(step, {"train/reward": 0.5}, float(step))
        live.refresh()
        first = directory.metrics.read_bytes().splitlines(keepends=True)[0]
        if is_replaced:
            (tmp_path / "new").write_bytes(first)
            (tmp_path / "new").replace(directory.metrics)
        else:
            directory.metrics.write_bytes(first)
        live.refresh()
        with MetricsLog(directory.metrics) as log:
            log.append(2, {"train/reward": 0.9}, 9.0)
        live.refresh()
    shown = [line.split()[:2] for line in lines_of(out)[2:]]
    assert shown == [["1/3", "0.500"], ["2/3", "0.500"], ["3/3", "0.500"], ["2/3", "0.900"]]


def finding(step: int, since: int, action: str = "alert") -> dict[str, Any]:
    return {"rule": "truncation", "action": action, "step": step, "since": since, "why": "w", "advice": "raise [it]"}


def test_findings_are_shown_at_once_in_two_lines_unless_they_are_only_logged(tmp_path: Path) -> None:
    out = io.StringIO()
    directory = RunDirectory(tmp_path)
    console = Console(file=out, width=40)
    metrics, status = directory.metrics, directory.status
    with LiveRun(metrics, status, console, total_steps=2, component_names=[], events=directory.events) as live:
        directory.add_event("warning", "half of the completions are cut off", **finding(12, 3))
        directory.add_event("critical", "it broke", **finding(13, 13, "stop"))
        directory.add_event("warning", "it is slow", **finding(14, 14, "log"))
        directory.add_event("info", "it is at its best", **finding(15, 15))
        live.refresh()
    assert lines_of(out)[1:] == [
        "warning (step 12, since 3): half of the completions are cut off",
        "  try: raise [it]",
        "critical (step 13): it broke",
        "  try: raise [it]",
    ]


def test_curves_that_an_earlier_attempt_has_shown_are_not_shown_again(tmp_path: Path) -> None:
    """Steps 1 and 2 stand in the file when the run goes on; step 3 comes."""
    metrics, out = tmp_path / "metrics.jsonl", io.StringIO()

    def measure(step: int) -> None:
        with metrics.open("a") as stream:
            stream.write(json.dumps({"step": step, "time": 1.0, "metrics": {"train/reward": 0.5}}) + "\n")

    measure(1)
    measure(2)
    shown = metrics.stat().st_size
    console = Console(file=out, width=200)
    with LiveRun(metrics, tmp_path / "s", console, total_steps=3, component_names=[], shown_bytes=shown):
        measure(3)
    assert "3/3" in out.getvalue()
    assert "1/3" not in out.getvalue()
    assert "2/3" not in out.getvalue()
