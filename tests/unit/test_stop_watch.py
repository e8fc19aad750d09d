"""When the workers of a run have to stop, and when nothing in its folder is theirs any more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create
from grpo_exp.stop_watch import StopWatch


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    return directory


def number_of_an_ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid


def test_nothing_asks_for_a_stop_at_first(directory: RunDirectory) -> None:
    assert StopWatch(directory, owner=os.getpid()).reason() is None


def test_stop_file_asks_for_it(directory: RunDirectory) -> None:
    watch = StopWatch(directory, owner=os.getpid())
    directory.stop_file.touch()
    assert watch.reason() == "stopped on request"
    assert not watch.is_replaced()


def test_end_of_the_front_end_asks_for_it_and_the_run_is_still_ours(directory: RunDirectory) -> None:
    """Its lock lies there as it left it; the workers may still write how far they came."""
    owner = number_of_an_ended_process()
    directory.lock.write_text(json.dumps({"host": socket.gethostname(), "pid": owner, "start": "1"}))
    watch = StopWatch(directory, owner=owner)
    assert watch.reason() == "the process that started the run has ended"
    assert not watch.is_replaced()


def test_new_owner_replaces_the_workers_of_the_one_that_died(directory: RunDirectory) -> None:
    """They would take their new owner's attempt for theirs if they began only now: the lock tells them apart."""
    lock = Lock(directory.lock)
    lock.acquire()
    begin_attempt(directory)
    watch = StopWatch(directory, owner=number_of_an_ended_process())
    assert watch.is_replaced()
    assert watch.reason() == "another process has taken over the run"
    assert not StopWatch(directory, owner=os.getpid()).is_replaced()
    lock.release()


def test_newer_attempt_replaces_workers_even_when_its_owner_has_left(directory: RunDirectory) -> None:
    """Started again and ended while old workers hung: there is no lock, and the result is not theirs to write."""
    watch = StopWatch(directory, owner=0)
    assert not watch.is_replaced()
    begin_attempt(directory)
    assert watch.is_replaced()


def test_time_that_is_over_asks_for_it_behind_all_else(directory: RunDirectory) -> None:
    """Two limits: the first one that is over is named; a request is named before them."""
    over: list[str | None] = [None, None]
    watch = StopWatch(directory, owner=os.getpid(), limits=[lambda: over[0], lambda: over[1]])
    assert watch.reason() is None
    over[1] = "SLURM ends job 17"
    assert watch.reason() == "SLURM ends job 17"
    over[0] = "an hour is over"
    assert watch.reason() == "an hour is over"
    directory.stop_file.touch()
    assert watch.reason() == "stopped on request"
