"""Sweeps of real runs: what they leave, and that nobody runs a point twice."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from integration.command import QUICK_MODEL, read_lines, run_command, run_train

SHORT = ("experiment=smoke", "trainer.max_steps=2", "tracker=none", "launch=inline", "trainer.save_model=false",
         "name=short", *QUICK_MODEL)  # fmt: skip


def test_a_sweep_of_two_runs(tmp_path: Path) -> None:
    words = ("--multirun", "algorithm.num_generations=2,4", *SHORT)
    done = run_train(*words, cwd=tmp_path)
    assert done.code == 0, done.output
    sweep = tmp_path / "outputs" / "sweeps" / "short"
    entries = read_lines(sweep / "manifest.jsonl")
    assert [entry["index"] for entry in entries] == [0, 1]
    for entry in entries:
        result = json.loads((sweep / entry["run_directory"] / "result.json").read_text())
        assert (result["status"], result["steps"]) == ("completed", 2)
    assert "2 runs: 2 completed" in done.output
    # 4 prompts a step: 4 x 2 = 8 and 4 x 4 = 16 completions
    assert "completions a step: 8 at G 2, 16 at G 4" in done.output

    again = run_train(*words, cwd=tmp_path)
    assert again.code == 0
    assert "nothing to start" in again.output
    assert again.cpu_seconds < 5

    reported = run_command(sys.executable, "-m", "grpo_exp", "report", "short", cwd=tmp_path)
    assert reported.code == 0, reported.output
    with (sweep / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["algorithm.num_generations"], row["status"], row["steps"]) for row in rows] == [
        ("2", "completed", "2"), ("4", "completed", "2")
    ]  # fmt: skip
    assert all(0 <= float(row["accuracy_after"]) <= 1 for row in rows)


@pytest.mark.long
def test_two_launches_at_the_same_moment_run_each_point_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpo_exp.train", "--multirun", "seed=0,1,2,3", *SHORT]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=580)[0] for process in both]
    sweep = tmp_path / "outputs" / "sweeps" / "short"
    entries = read_lines(sweep / "manifest.jsonl")
    assert [entry["seed"] for entry in entries] == [0, 1, 2, 3]
    for entry in entries:
        run = sweep / entry["run_directory"]
        assert json.loads((run / "result.json").read_text())["status"] == "completed"
        assert [path.name for path in (run / "logs").iterdir()] == ["attempt-1"]
    # 85: the other one was still running a point when this one had no more to start.
    assert {process.returncode for process in both} <= {0, 85}
    assert 0 in {process.returncode for process in both}
    assert all("Traceback" not in output for output in outputs)


@pytest.mark.long
def test_quick_cpu_sweep_completes(tmp_path: Path) -> None:
    """Eight runs of the primed built-in model, two at a time, each a run of its own in one MLflow database."""
    words = ("--multirun", "+sweeps=quick_cpu", "hydra.launcher.slots=2")
    done = run_train(*words, cwd=tmp_path, timeout=1800)
    assert done.code == 0, done.output
    assert "8 runs: 8 completed" in done.output
    assert run_command(sys.executable, "-m", "grpo_exp", "report", "quick_cpu", cwd=tmp_path).code == 0
    sweep = tmp_path / "outputs" / "sweeps" / "quick_cpu"
    ids = [json.loads(path.read_text())["mlflow"]["ids"]["run_id"] for path in sweep.glob("*/tracker.json")]
    assert len(set(ids)) == 8
    assert (tmp_path / "outputs" / "mlflow.db").is_file()
    with (sweep / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8
    for row in rows:  # 30 steps of GRPO help this model at every point of the grid
        assert float(row["accuracy_after"]) > float(row["accuracy_before"])
