"""Real runs of the built-in model through the batch scripts; minutes each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.command import QUICK_MODEL, read_lines, run_command, run_train
from slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.long]

QUICK = ("tracker=mlflow", "trainer.max_steps=6", "dataset.eval_size=16", *QUICK_MODEL)
LAUNCHER = ("hydra/launcher=slurm", "+hydra.launcher.environment.OMP_NUM_THREADS='1'")


def jobs_of(sweep: Path) -> list[dict[str, Any]]:
    return read_lines(sweep / "slurm" / "jobs.jsonl")


def steps_of(run: Path) -> list[int]:
    """Return the training steps of a run, over all attempts that count."""
    return [line["step"] for line in read_lines(run / "metrics.jsonl") if "train/reward" in line["metrics"]]


def hurry_until_idle(slurm: SlurmCluster, job: str, *, seconds: float) -> None:
    def is_over() -> bool:
        for index, state in slurm.task_states(job).items():
            if state == "PENDING":
                slurm.hurry(job, index)
        return not slurm.active_jobs().strip()

    slurm.wait_for(is_over, seconds=seconds, what="the end of all runs")


def test_quick_sweep_as_an_array_completes(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = ("--multirun", "+sweeps=quick_cpu", *LAUNCHER, "hydra.launcher.throttle=2", "output_dir=outputs", *QUICK)
    submitted = run_train(*words, cwd=tmp_path, env=slurm.environment)
    assert submitted.code == 0, submitted.output
    sweep = tmp_path / "outputs" / "sweeps" / "quick_cpu"
    (job,) = jobs_of(sweep)
    assert job["indices"] == list(range(8))
    slurm.wait_for(lambda: "RUNNING" in slurm.task_states(job["job_id"]).values(), seconds=60, what="a task at work")
    hurry_until_idle(slurm, job["job_id"], seconds=900)

    runs = sorted(path.parent for path in sweep.glob("*/result.json"))
    assert len(runs) == 8
    assert {json.loads((run / "result.json").read_text())["status"] for run in runs} == {"completed"}
    assert [steps_of(run) for run in runs] == [[1, 2, 3, 4, 5, 6]] * 8
    trackers = [json.loads((run / "tracker.json").read_text())["mlflow"]["ids"]["run_id"] for run in runs]
    assert len(set(trackers)) == 8
    assert set(slurm.task_states(job["job_id"]).values()) == {"COMPLETED"}
    status = run_command(
        sys.executable, "-m", "grpo_exp", "sweep", "status", str(sweep), "--json", cwd=tmp_path, env=slurm.environment
    )
    assert json.loads(status.output)["counts"] == {"completed": 8}
    again = run_train(*words, cwd=tmp_path, env=slurm.environment)
    assert again.code == 0, again.output
    assert len(jobs_of(sweep)) == 1  # nothing was left to submit


def test_two_nodes_train_one_run_together(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = ("--multirun", "name=two", *LAUNCHER, "hydra.launcher.nodes=2", "launch=ddp", "launch.num_processes=2",
             "launch.device=cpu", "output_dir=outputs", *QUICK)  # fmt: skip
    submitted = run_train(*words, cwd=tmp_path, env=slurm.environment)
    assert submitted.code == 0, submitted.output
    sweep = tmp_path / "outputs" / "sweeps" / "two"
    (job,) = jobs_of(sweep)
    slurm.wait_for(lambda: "RUNNING" in slurm.task_states(job["job_id"]).values(), seconds=60, what="the task at work")
    hurry_until_idle(slurm, job["job_id"], seconds=400)
    log = (sweep / "slurm" / "logs" / f"{job['job_id']}_0.log").read_text()
    assert slurm.task_states(job["job_id"]) == {0: "COMPLETED"}, log
    (result,) = sweep.glob("*/result.json")
    assert json.loads(result.read_text())["status"] == "completed"
    assert steps_of(result.parent) == [1, 2, 3, 4, 5, 6]
    assert len(list(result.parent.glob("logs/attempt-1/worker-*.log"))) == 2  # one of each process
