"""Two gloo processes on a CPU: one run, one tracker run, and groups that belong to one prompt."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.rundir import RunDirectory, begin_attempt, write_json
from grpo_exp.settings import load
from grpo_exp.worker import run_worker
from integration.command import QUICK_MODEL, Finished, only_run, read_lines, run_command, run_train

SMOKE = ("algorithm=dapo", "experiment=smoke", *QUICK_MODEL)


def test_launch_ddp_is_one_run(tmp_path: Path) -> None:
    finished = run_train(*SMOKE, "launch=ddp", cwd=tmp_path)
    assert finished.code == 0, finished.output
    # 4 prompts x 8 = 32 completions, 16 on each process
    assert "32 a step = 2 processes x 1 micro-step x 16" in finished.output
    run = only_run(tmp_path / "outputs")
    records = read_lines(run / "metrics.jsonl")
    assert [r["step"] for r in records] == [0, 1, 2, 3, 3]
    assert json.loads((run / "result.json").read_text())["eval"]["after"]["num_prompts"] == 16
    # 16 held-out problems x 4 samples: each was answered by one process
    assert len(read_lines(run / "completions" / "held_out_after.jsonl")) == 64

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
    assert sum(len(client.search_runs([e.experiment_id])) for e in client.search_experiments()) == 1


def test_groups_belong_to_one_prompt(tmp_path: Path) -> None:
    """Each block of G = 6 gathered completions answers one prompt.

    2 processes x 9 completions: the second of the three groups lies on both, which must not mix prompts.
    """
    worker = Path(__file__).with_name("record_groups.py")
    out = tmp_path / "groups.json"
    finished = run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        str(worker), str(out), *QUICK_MODEL,
        cwd=tmp_path, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.code == 0, finished.output
    steps = json.loads(out.read_text())
    assert len(steps) == 2
    for prompts in steps:
        assert len(prompts) == 18
        groups = [prompts[start : start + 6] for start in range(0, 18, 6)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == 3


def test_a_worker_refuses_another_world_size(tmp_path: Path) -> None:
    """A run that was solved for two processes is started with one."""
    settings = load.to_settings(load.compose([*SMOKE, "launch=ddp", "tracker=none", f"output_dir={tmp_path}"]))
    run = RunDirectory(tmp_path / "run")
    begin_attempt(run)
    write_json(run.config_json, settings.model_dump(mode="json"))
    write_json(run.provenance, {})
    with pytest.raises(RunError, match="1 worker process"):
        run_worker(run)
    result = json.loads(run.result.read_text())
    assert result["status"] == "failed"
    assert "launch.num_processes=2: 1 worker process(es) came together" in result["reason"]


def launched(*words: str, num_processes: int, cwd: Path) -> Finished:
    return run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(num_processes),
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        "-m", "grpo_exp.train", *words,
        cwd=cwd, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.long
def test_started_by_accelerate_launch(tmp_path: Path) -> None:
    """Rank 0 composes; the other process gets the folder from it. One run folder, one table."""
    finished = launched(*SMOKE, "tracker=none", num_processes=2, cwd=tmp_path)
    assert finished.code == 0, finished.output
    run = only_run(tmp_path / "outputs")
    assert json.loads((run / "config.json").read_text())["launch"]["num_processes"] == 2
    assert finished.output.count("sampled accuracy") == 1
    # The main process shows the steps, as everywhere: one header, one line a step of the smoke run's three.
    steps = [line.split()[0] for line in finished.output.splitlines() if re.match(r"\s*[0-9]+/3\s", line)]
    assert steps == ["1/3", "2/3", "3/3"]


@pytest.mark.long
def test_what_accelerate_launch_cannot_start(tmp_path: Path) -> None:
    refused = launched(*SMOKE, "launch.num_processes=3", num_processes=2, cwd=tmp_path)
    assert refused.code != 0
    assert "accelerate launch started 2" in refused.output
    multirun = launched("--multirun", "seed=0,1", num_processes=2, cwd=tmp_path)
    assert multirun.code != 0
    assert "cannot run inside accelerate launch" in multirun.output
