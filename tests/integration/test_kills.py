"""Runs that are killed, on disks that are full, on two processes: each goes on from its newest complete checkpoint."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from grpo_exp.rundir import RunDirectory, read_events
from integration.command import only_run, run_command
from unit.resume.small_run import REUSED, SYNCED, curves, weights

pytestmark = pytest.mark.long
HERE = Path(__file__).resolve().parent
PATHS = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
ENVIRONMENT = {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}


def test_thirty_kills_at_random_moments_make_the_same_run(tmp_path: Path) -> None:
    """240 steps, a checkpoint behind each second one; whatever was lost is made again, once."""
    words = [*REUSED, "trainer.max_steps=240", "trainer.checkpoint.every_steps=2", "trainer.eval_before=false"]
    runs = []
    for name, kills in (("whole", 0), ("killed", 30)):
        folder = tmp_path / name
        folder.mkdir()
        done = run_command(
            sys.executable, str(HERE / "killed_runs.py"), str(folder), "0", str(kills), *words,
            cwd=tmp_path, env=ENVIRONMENT, timeout=900,
        )  # fmt: skip
        assert done.code == 0, done.output
        starts = [json.loads(row) for row in done.output.splitlines() if row.startswith("{")]
        assert [start["status"] for start in starts] == [-9] * kills + [0]
        runs.append(RunDirectory(only_run(folder / "killed")))
    whole, killed = runs
    steps = [step for step, metrics, _ in curves(killed) if "train/loss" in metrics]
    assert steps == list(range(1, 241))  # none twice, none missing
    assert curves(killed) == curves(whole)
    assert weights(killed) == weights(whole)
    resumed = [event["step"] for event in read_events(killed) if event["kind"] == "resume"]
    assert resumed == sorted(resumed)  # never further back than before
    assert len(set(resumed)) > 5
    assert sum(start["partial"] for start in starts if "partial" in start) > 0  # some kills came inside a save


@pytest.mark.parametrize("words", [REUSED, SYNCED], ids=["reused", "synced"])
def test_two_processes_go_on_as_one_did(words: tuple[str, ...], tmp_path: Path) -> None:
    """Stopped behind steps 1, 4, 5 and 7 of 8; each process has its own random numbers and its own batches."""
    for name, stops in (("whole", "-"), ("stopped", "1,4,5,7")):
        done = run_command(
            sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
            "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
            str(HERE / "resumed_ranks.py"), str(tmp_path / name), stops, *words,
            cwd=tmp_path, env={**ENVIRONMENT, "ACCELERATE_USE_CPU": "true"}, timeout=600,
        )  # fmt: skip
        assert done.code == 0, done.output
    whole, stopped = (RunDirectory(only_run(tmp_path / name)) for name in ("whole", "stopped"))
    assert stopped.attempt == 5
    assert curves(stopped) == curves(whole)
    assert weights(stopped) == weights(whole)
    names = {path.name for path in (stopped.checkpoints / "checkpoint-8").iterdir()}
    assert {"run_state_0.pt", "run_state_1.pt", "rng_state_0.pth", "rng_state_1.pth"} <= names


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("spare", [1.05, 0.0], ids=["seen before", "while writing"])
def test_full_file_system_leaves_the_old_checkpoint(spare: float, tmp_path: Path) -> None:
    """Room for one checkpoint and a half. Without the look at the room, the disk gets full inside the second one."""
    (tmp_path / "small").mkdir()
    mounted = run_command("mount", "-t", "tmpfs", "-o", "size=240k", "tmpfs", str(tmp_path / "small"), cwd=tmp_path)
    assert mounted.code == 0, mounted.output
    try:
        done = run_command(
            sys.executable, str(HERE / "full_disk.py"), str(tmp_path), str(spare), cwd=tmp_path, env=ENVIRONMENT
        )
        assert done.code == 0, done.output
        facts = json.loads(done.output.splitlines()[-1])
    finally:
        run_command("umount", str(tmp_path / "small"), cwd=tmp_path)
    assert facts["code"] == 1
    assert facts["complete"] == [2]
    assert facts["result"]["status"] == "failed"
    assert facts["result"]["resumable"] is True
    assert re.search(r"are free and a checkpoint takes|could not be written", facts["result"]["reason"])
    assert "checkpoint-2 is complete and stays; make room" in facts["result"]["reason"]
    assert facts["left"] == ["checkpoint-2"]
