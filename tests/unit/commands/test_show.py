"""`grpo-exp show`: running, lost, and the three ways to end are told apart."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from grpo_exp.commands import show
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, write_json, write_text
from unit.run_folder import a_result, settings_of


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run of 5 steps that came to step 3."""
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    write_json(directory.config_json, settings_of(tmp_path).model_dump(mode="json"))
    directory.metrics.write_text("".join(f'{{"step": {step}, "time": 1.0, "metrics": {{}}}}\n' for step in range(4)))
    write_json(directory.status, {"phase": "training", "done": 0, "total": 5})
    return directory


@pytest.fixture
def shown(directory: RunDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    monkeypatch.setenv("COLUMNS", "300")
    return Shown(directory, capsys)


class Shown:
    """Calls the command and returns what it prints."""

    def __init__(self, directory: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory = directory
        self._capsys = capsys

    def __call__(self) -> str:
        assert show.main([str(self._directory.path)]) == 0
        return self._capsys.readouterr().out


def test_run_with_a_live_owner_is_running(directory: RunDirectory, shown: Shown) -> None:
    lock = Lock(directory.lock)
    lock.acquire()
    assert f"running in process {os.getpid()} on {socket.gethostname()}: step 3 of 5, training" in shown()
    write_json(directory.status, {"phase": "priming", "done": 30, "total": 400})
    assert "step 3 of 5, priming 30/400" in shown()
    lock.release()


def test_run_whose_owner_died_is_lost(directory: RunDirectory, shown: Shown) -> None:
    """Process 1 of this machine did not start at tick -1: the owner has ended. Its heart beat 90 s ago: 1:30."""
    directory.lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "start": "-1"}))
    os.utime(directory.lock, (time.time() - 90,) * 2)
    text = shown()
    assert "lost: step 3 of 5, training; process 1 on" in text
    assert "last heard of 1:3" in text  # and a second or two
    assert "start it again" in text
    assert "running" not in text


def test_run_without_lock_and_result_is_lost(directory: RunDirectory, shown: Shown) -> None:
    directory.metrics.unlink()
    directory.status.unlink()
    assert "lost: step 0 of 5; its process has ended without a result; start it again" in shown()


@pytest.mark.parametrize("status", ["completed", "stopped", "failed"])
def test_run_with_a_result_shows_it_whatever_lies_around(status: str, directory: RunDirectory, shown: Shown) -> None:
    """The lock of an owner that was killed after its workers had written the result."""
    directory.lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "start": "-1"}))
    write_json(directory.result, a_result(status=status, reason="so it was"))
    text = shown()
    assert f"{status.capitalize()} after 5 steps in 0:12: so it was" in text
    assert "lost" not in text


def test_picture_of_an_earlier_attempt_is_not_shown(directory: RunDirectory, shown: Shown) -> None:
    write_text(directory.curves, "a picture")
    write_json(directory.result, a_result())
    assert "curves.png" in shown()
    begin_attempt(directory)
    write_json(directory.result, a_result())
    assert "curves.png" not in shown()
