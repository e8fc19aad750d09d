"""A sweep whose runs are stubs, and its launcher: the real one, with a Python that starts the stubs."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.settings import load
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.slurm import launcher
from grpo_exp.sweeps.states import TO_RESUME, read_statuses
from slurm.cluster import SlurmCluster, read_lines

_TESTS = Path(__file__).resolve().parents[1]
_PYTHON = """#!/bin/sh
case "$1 $2 $3 $4" in
"-m grpo_exp sweep run-point")
  shift 4
  exec {python} {folder}/stub_trainer.py "$@"
  ;;
esac
exec {python} "$@"
"""
_VLLM = """#!/bin/sh
exec {python} {folder}/stub_vllm.py "$@"
"""


class StubSweep:
    """A sweep on a test's SLURM.

    Args:
        folder: Where it will lie.
        num_points: Its runs.
        words: Settings of the runs.
    """

    def __init__(self, folder: Path, num_points: int, *, words: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True)
        self.sweep = SweepDirectory(folder)
        self.entries = [
            Entry(index, (f"seed={index}",), {"seed": index}, "aaaaaaaa", index, f"aaaaaaaa-s{index}")
            for index in range(num_points)
        ]
        settings = load.to_settings(load.compose(words)).model_dump(mode="json")
        lines = [json.dumps({**settings, "seed": entry.seed}) for entry in self.entries]
        self.sweep.settings.write_text("".join(f"{line}\n" for line in lines))
        self.sweep.manifest.write_text("".join(f"{json.dumps(asdict(entry))}\n" for entry in self.entries))
        self.python, self.vllm = folder / "stub-python", folder / "stub-vllm"
        for path, text in ((self.python, _PYTHON), (self.vllm, _VLLM)):
            path.write_text(text.format(python=sys.executable, folder=_TESTS / "slurm"))
            path.chmod(0o755)

    def behave(self, **behaviour: Any) -> None:
        """Say what the stubs do."""
        (self.sweep.path / "behaviour.json").write_text(json.dumps(behaviour))

    def values(self, **changed: Any) -> dict[str, Any]:
        """Return settings of the launcher that start the stubs."""
        path = os.pathsep.join([str(_TESTS), str(_TESTS / "slurm" / "stubs"), os.environ.get("PYTHONPATH", "")])
        environment = {"PYTHONPATH": path, "STUB_SWEEP": str(self.sweep.path), "TOLD": "a 'b' $(c)"}
        return {"python": str(self.python), "vllm": str(self.vllm), "environment": environment, **changed}

    def start(self, **changed: Any) -> list[str]:
        """Submit what is to be resumed, and return the numbers of the new jobs."""
        before = len(read_lines(self.sweep.path / "slurm" / "jobs.jsonl"))
        values = self.values(**changed)
        call = {"launcher": {"kind": "slurm", "settings": values}, "calls": []}
        self.sweep.about.write_text(json.dumps(call))
        statuses = [s for s in read_statuses(self.sweep, launcher.view(self.sweep)) if s.state in TO_RESUME]
        assert launcher.start(self.sweep, statuses, values, Console(file=io.StringIO())) == 0
        return [job["job_id"] for job in read_lines(self.sweep.path / "slurm" / "jobs.jsonl")[before:]]

    def steps(self, index: int) -> list[int]:
        """Return the steps that a run took, over all its starts."""
        path = self.sweep.path / self.entries[index].run_directory / "steps.txt"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def starts(self, index: int) -> list[dict[str, Any]]:
        """Return how a run was started, each time."""
        return read_lines(self.sweep.path / self.entries[index].run_directory / "starts.jsonl")

    def log(self, job_id: str, index: int) -> str:
        """Return what a task printed, in all its starts."""
        path = self.sweep.path / "slurm" / "logs" / f"{job_id}_{index}.log"
        return path.read_text() if path.exists() else ""

    def finish(self, cluster: SlurmCluster, job_ids: Sequence[str], *, seconds: float) -> None:
        """Wait until nothing of the jobs is pending or running; requeued tasks do not wait their two minutes."""

        def is_over() -> bool:
            active = 0
            for job_id in job_ids:
                states = cluster.task_states(job_id)
                for task in [task for task, state in states.items() if state == "PENDING"]:
                    cluster.hurry(job_id, task)
                active += sum(state in {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} for state in states.values())
            return active == 0

        cluster.wait_for(is_over, seconds=seconds, what=f"the end of jobs {', '.join(job_ids)}")
