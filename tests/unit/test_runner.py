"""Signals: the first one asks the workers to stop, the second one ends all at once, with a result and no lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_exp import runner
from grpo_exp.adoption import Adopted, adopt
from grpo_exp.rundir import RunDirectory, write_json
from unit.run_folder import a_console, a_result, request_of

TESTS = Path(__file__).resolve().parents[1]

#: An inline run of the folder in the first argument whose worker interrupts itself as often as the second one says.
INLINE = """
import json, os, signal, sys, time
from pathlib import Path
from grpo_exp import runner
from grpo_exp.console import build_console
from grpo_exp.rundir import write_json
from unit.run_folder import a_result, request_of

def work(directory):
    directory.metrics.write_text('{"step": 3, "time": 1.0, "metrics": {}}\\n')
    for _ in range(int(sys.argv[2])):
        os.kill(os.getpid(), signal.SIGINT)
        assert directory.stop_file.exists()
        time.sleep(0.5)  # the live view speaks of the first one
    if sys.argv[2] == "2":
        time.sleep(600)
    write_json(directory.result, a_result(status="stopped", exit_code=1, reason="the worker's own"))

runner.run_worker = work
sys.exit(runner.run(request_of(Path(sys.argv[1])), build_console()))
"""


def run_inline(folder: Path, *, signals: int) -> tuple[subprocess.CompletedProcess[str], Path]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-c", INLINE, str(folder), str(signals)],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    (config,) = folder.glob("*/*/config.json")
    return done, config.parent


def test_second_interrupt_ends_a_run_in_place_at_once(tmp_path: Path) -> None:
    done, run = run_inline(tmp_path, signals=2)
    assert done.returncode == 1, done.stderr
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["reason"], result["steps"]) == ("stopped", "ended at once on request", 3)
    assert not (run / "lock.json").exists()
    assert "stopping after this step" in done.stdout
    assert "ended at once" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_first_interrupt_leaves_the_end_to_the_worker(tmp_path: Path) -> None:
    done, run = run_inline(tmp_path, signals=1)
    assert done.returncode == 1, done.stderr
    assert json.loads((run / "result.json").read_text())["reason"] == "the worker's own"
    assert "Stopped after 5 steps in 0:12: the worker's own" in done.stdout


@pytest.fixture
def adopted(tmp_path: Path) -> Adopted:
    console, _ = a_console()
    found = adopt(request_of(tmp_path, "launch=ddp", "launch.num_processes=1"), console)
    assert isinstance(found, Adopted)
    return found


class Workers:
    """In the place of launched workers: each time they are asked whether they have ended, a signal arrives."""

    ends_after = 1000

    def __init__(self, settings: object, directory: RunDirectory, *, gpus: str | None = None) -> None:
        assert gpus is None  # no server takes any
        self.asked = 0
        self.directory = directory
        Workers.latest = self
        self.killed = False

    latest: Workers

    def poll(self) -> int | None:
        self.asked += 1
        if self.asked > self.ends_after:
            write_json(self.directory.result, a_result(status="stopped", exit_code=1))
            return 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert self.directory.stop_file.exists()
        return None

    def kill(self) -> None:
        self.killed = True


def test_second_signal_kills_launched_workers_and_leaves_a_result(
    adopted: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "WorkerGroup", Workers)
    console, out = a_console()
    before = signal.getsignal(signal.SIGTERM)
    with adopted.owned():
        runner.work(adopted, console)
    assert Workers.latest.killed
    assert Workers.latest.asked == 2
    result = adopted.directory.read_result()
    assert result is not None
    assert (result["status"], result["reason"]) == ("stopped", "ended before the workers could write a result")
    assert out.getvalue().count("stopping after this step; once more to end at once") == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_first_signal_waits_for_launched_workers(adopted: Adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WorkerGroup", Workers)
    monkeypatch.setattr(Workers, "ends_after", 1)
    console, _ = a_console()
    with adopted.owned():
        runner.work(adopted, console)
    assert adopted.directory.read_result() == a_result(status="stopped", exit_code=1)
