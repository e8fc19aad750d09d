"""Runs with trackers and without a model: their folders, fake trainers, and what a tracker should hold of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from grpo_exp.adoption import take, write_run_files
from grpo_exp.checkpoints.choice import Choice
from grpo_exp.rundir import RunDirectory
from grpo_exp.tracking.metrics_log import last_per_step, read_metrics
from unit.run_folder import request_of

FAKE_TRAINER = Path(__file__).with_name("fake_trainer.py")
#: Trainers that tests have started; a test that fails leaves none running.
STARTED: list[subprocess.Popen[bytes]] = []
#: Look often, so that a test of a second has something to see; and let a busy machine take its time at the end.
QUICK = ("tracker.poll_seconds=0.2", "tracker.max_retry_seconds=1", "tracker.finish_timeout_seconds=300")


def begin(folder: Path, *words: str) -> RunDirectory:
    """Begin an attempt of a run with these settings, as the front end does, and return its folder."""
    request = request_of(folder, "trainer.max_steps=1000", "tracker=mlflow", *QUICK, *words)
    directory, lock = take(request.settings)
    write_run_files(directory, request, Choice(None), commits={})
    lock.release()
    return directory


def start(
    directory: RunDirectory, first: int, last: int, *, seconds: float, status: str = ""
) -> subprocess.Popen[bytes]:
    """Start a fake trainer; `seconds` is the time of a step."""
    words = [str(directory.path), str(first), str(last), str(seconds), *([status] if status else [])]
    STARTED.append(subprocess.Popen([sys.executable, str(FAKE_TRAINER), *words]))
    return STARTED[-1]


def train(directory: RunDirectory, first: int, last: int, *, seconds: float = 0.0, status: str = "") -> float:
    """Run a fake trainer to its end and return the seconds that it took."""
    began = time.monotonic()
    assert start(directory, first, last, seconds=seconds, status=status).wait(400) == 0
    return time.monotonic() - began


def wait_until(holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def steps_written(directory: RunDirectory) -> int:
    """Return how many records the run has."""
    return len(read_metrics(directory.metrics)) if directory.metrics.exists() else 0


def points(directory: RunDirectory) -> Mapping[str, dict[int, float]]:
    """Return each curve of `metrics.jsonl`: the last value of each step."""
    curves: dict[str, dict[int, float]] = {}
    for record in last_per_step(read_metrics(directory.metrics)):
        for name, value in record["metrics"].items():
            curves.setdefault(name, {})[record["step"]] = value
    return curves


def copier_processes(directory: RunDirectory) -> list[int]:
    """Return the numbers of the processes that feed the run's trackers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"grpo_exp.tracking.copier" in words and str(directory.path).encode() in words:
                found.append(int(entry.name))
    return found
