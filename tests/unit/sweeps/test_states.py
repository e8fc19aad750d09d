"""States from what lies in the run directories, and what is told of them."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.commands import report
from grpo_exp.commands import sweep as sweep_command
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import write_json
from grpo_exp.sweeps.manifest import SweepDirectory, set_cancelled
from grpo_exp.sweeps.states import State, exit_code_of, read_statuses
from unit.sweeps.sweep_folder import a_sweep, finish

FAILED = {"status": "failed", "exit_code": 1, "reason": "RuntimeError: broken"}
STOPPED = {"status": "stopped", "exit_code": 85, "resumable": True, "reason": "stopped on request"}
BY_RULE = {"status": "stopped", "exit_code": 3, "reason": "entropy collapsed"}


def states(sweep: SweepDirectory, view: dict[int, str] | None = None) -> list[State]:
    return [status.state for status in read_statuses(sweep, view)]


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """One run in each state, in the order of STATES."""
    sweep = a_sweep(tmp_path / "s", seeds=8)
    entries = sweep.read_entries()
    evaluation = {"before": {"accuracy": 0.25}, "after": {"accuracy": 0.5, "greedy_accuracy": 0.75}}
    for entry, result in zip(
        entries[:5], ({"eval": evaluation}, FAILED, STOPPED, BY_RULE, {"exit_code": None}), strict=True
    ):
        finish(sweep.run(entry), **result)
    set_cancelled(sweep, add=[entries[6].run_directory])
    write_json(sweep.refusal(entries[7]), {"time": 1.0, "reason": "launch.device=cuda: no GPU is visible here"})
    return sweep


STATES = ["completed", "failed", "stopped", "ended_by_rule", "lost", "missing", "cancelled", "failed"]


def test_each_state_is_known_by_its_marks(sweep: SweepDirectory) -> None:
    assert states(sweep) == STATES
    reasons = [status.reason for status in read_statuses(sweep)]
    assert reasons[1] == "RuntimeError: broken"
    assert reasons[7] == "launch.device=cuda: no GPU is visible here"


def test_a_live_owner_means_running_whatever_an_earlier_attempt_left(sweep: SweepDirectory) -> None:
    directory = sweep.run(sweep.read_entry(1))
    lock = Lock(directory.lock)
    lock.acquire()
    try:
        status = read_statuses(sweep)[1]
    finally:
        lock.release()
    assert (status.state, status.steps, status.reward) == ("running", 2, 0.2)
    assert states(sweep)[1] == "failed"


def test_a_heartbeat_of_another_host_counts_for_two_minutes(sweep: SweepDirectory) -> None:
    lock = sweep.run(sweep.read_entry(4)).lock
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "start": "1"}))
    assert states(sweep)[4] == "running"
    old = time.time() - 121
    os.utime(lock, (old, old))
    assert states(sweep)[4] == "lost"


def test_the_scheduler_corrects_what_the_folders_cannot_know(sweep: SweepDirectory) -> None:
    """A completed run stays so; a requeued one is not to be started again; a cancelled one stays cancelled."""
    view = {0: "RUNNING", 2: "REQUEUED", 4: "COMPLETING", 5: "PENDING", 6: "PENDING", 1: "FAILED"}
    expected = ["completed", "failed", "queued", "ended_by_rule", "running", "queued", "cancelled", "failed"]
    assert states(sweep, view) == expected


@pytest.mark.parametrize(
    ("picked", "code"), [([0], 0), ([0, 3], 3), ([0, 3, 2], 85), ([0, 6], 85), ([0, 4], 85), ([0, 1, 2, 3], 1), ([], 0)]
)
def test_exit_code_is_that_of_the_worst_run(sweep: SweepDirectory, picked: list[int], code: int) -> None:
    statuses = read_statuses(sweep)
    assert exit_code_of([statuses[index] for index in picked]) == code


def test_status_counts_names_the_troubled_and_says_how_to_go_on(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep_command.main(["status", str(sweep.path)]) == 0
    told = capsys.readouterr().out
    assert "8 runs: 1 completed, 1 stopped, 1 missing, 1 lost, 1 cancelled, 1 ended_by_rule, 2 failed" in told
    assert "RuntimeError: broken" in told
    # 4 are left (stopped, lost, missing, cancelled) and the one that is done took 12 s: 4 x 12 = 48
    assert "left: 4 runs x 0:12 (mean of 1 that are done) = 0:48" in told
    assert f"grpo-exp sweep resume {sweep.path}" in told
    assert f"grpo-exp sweep retry {sweep.path}" in told


def test_status_names_forty_and_counts_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=42)
    for entry in sweep.read_entries():
        write_json(sweep.refusal(entry), {"time": 1.0, "reason": "no room"})
    sweep_command.main(["status", str(sweep.path)])
    told = capsys.readouterr().out
    assert told.count("no room") == 40
    assert "... and 2 more: --all names them" in told


def test_status_as_json_holds_every_run(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(sweep.run(sweep.read_entry(0)).tracker, {"mlflow_run_id": "abc"})
    assert sweep_command.main(["status", str(sweep.path), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [point["state"] for point in told["points"]] == STATES
    assert told["points"][0]["tracker"] == {"mlflow_run_id": "abc"}
    assert told["points"][0]["eval"]["after"]["accuracy"] == 0.5
    assert "tracker" not in told["points"][1]
    assert "steps" not in told["points"][5]
    assert told["exit_code"] == 1


def test_report_has_one_line_per_run(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(sweep.path)]) == 0
    assert "8 runs" in capsys.readouterr().out
    with sweep.summary.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["status"] for row in rows] == STATES
    assert [row["seed"] for row in rows] == [str(seed) for seed in range(8)]
    first = rows[0]
    assert (first["accuracy_before"], first["accuracy_after"], first["greedy_accuracy_before"]) == ("0.25", "0.5", "")
    assert (first["trainer.learning_rate"], first["steps"], first["wall_seconds"]) == ("0.0001", "2", "12.0")
    assert first["error"] == ""
    assert rows[1]["error"] == "RuntimeError: broken"
    assert (rows[5]["steps"], rows[5]["attempts"]) == ("", "0")


def test_report_fills_in_what_another_call_swept(tmp_path: Path) -> None:
    """The first call did not sweep the number of steps, so its runs have it from their settings: 2."""
    from grpo_exp.sweeps.manifest import extend
    from grpo_exp.sweeps.summary import write_summary
    from unit.sweeps.sweep_folder import CALL, a_point

    sweep = a_sweep(tmp_path / "s", seeds=1)
    point = a_point(sweep.path, seed=1)
    extend(sweep, [type(point)(point.words, {"trainer.max_steps": 4}, point.settings, point.point_id)], call=CALL)
    write_summary(sweep, read_statuses(sweep))
    with sweep.summary.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["trainer.max_steps"] for row in rows] == ["2", "4"]
    assert [row["trainer.learning_rate"] for row in rows] == ["0.0001", "0.0001"]


def test_a_thousand_runs_are_looked_at_within_two_seconds_of_the_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=1000)
    result = json.dumps({**STOPPED, "steps": 2, "eval": {}, "wall_seconds": 12.0})
    for entry in sweep.read_entries():
        directory = sweep.run(entry)
        directory.attempt_logs.with_name("attempt-1").mkdir(parents=True)
        directory.result.write_text(result)
        directory.metrics.write_text('{"step": 2, "time": 1.0, "metrics": {"train/reward": 0.5}}\n' * 50)
    started = time.thread_time()  # other work on the machine stretches the clock
    assert sweep_command.main(["status", str(sweep.path)]) == 0
    assert time.thread_time() - started < 2
    assert "1000 runs: 1000 stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["statsu", "x"], "did you mean status"),
        (["status"], "1 word(s) are wanted"),
        (["status", "x", "--jason"], "--jason is none of its options"),
        (["run-point", "x", "one"], "INDEX=one: a number is wanted"),
    ],
)
def test_wrong_words_are_told(words: list[str], message: str) -> None:
    from grpo_exp.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        sweep_command.main(words)
    assert message in str(caught.value)
