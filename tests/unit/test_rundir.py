"""The run directory: whole files, one owner, attempts that keep what earlier ones measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import rundir
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.rundir import STALE_SECONDS, Lock, RunDirectory, find_or_create, write_json, write_text

#: Takes the lock of the folder in its argument, says so, and ends when its standard input does.
OWNER = """
import os, sys
from pathlib import Path
from grpo_exp.rundir import Lock, RunDirectory
lock = Lock(RunDirectory(Path(sys.argv[1])))
lock.acquire()
print("owned", flush=True)
word = sys.stdin.readline()
if word == "die\\n":
    os._exit(1)
lock.release()
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return find_or_create(tmp_path, "abc-s0", resume=True)


@pytest.fixture
def owner(directory: RunDirectory) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the run."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "owned\n"
        yield process
        if process.poll() is None:
            process.kill()


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


# ------------------------------------------------------------------------------------------ whole files


def test_reader_sees_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    """200 changes between 100 kB of a and 100 kB of b, read all the time: never a mixture, never a part."""
    path, seen, done = tmp_path / "result.json", set(), threading.Event()
    texts = ["a" * 100_000, "b" * 100_000]
    write_text(path, texts[0])

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        write_text(path, texts[number % 2])
    done.set()
    reader.join()
    assert seen <= set(texts)
    assert seen


def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """A lone surrogate cannot be encoded, so writing fails after the temporary file was opened."""
    path = tmp_path / "result.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "x" * 100_000 + "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_readable_and_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "data.json"
    write_json(path, {"accuracy": 0.5, "text": "ä"})
    assert json.loads(path.read_text()) == {"accuracy": 0.5, "text": "ä"}
    assert [entry.name for entry in path.parent.iterdir()] == ["data.json"]


# ------------------------------------------------------------------------------------------ folders


def test_resuming_finds_the_same_folder(tmp_path: Path) -> None:
    first = find_or_create(tmp_path, "abc-s0", resume=True)
    (first.path / "metrics.jsonl").write_text("{}\n")
    assert find_or_create(tmp_path, "abc-s0", resume=True) == first
    assert first.metrics.read_text() == "{}\n"
    assert first.run_id == "abc-s0"


def test_never_resuming_makes_neighbours(tmp_path: Path) -> None:
    """abc-s0, then -2, then -3; the first one is left alone."""
    names = [find_or_create(tmp_path / "name", "abc-s0", resume=False).run_id for _ in range(3)]
    assert names == ["abc-s0", "abc-s0-2", "abc-s0-3"]
    assert find_or_create(tmp_path / "name", "abc-s0", resume=True).run_id == "abc-s0"


def test_folders_made_at_the_same_time_differ(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(find_or_create(tmp_path, "abc-s0", resume=False).run_id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["abc-s0", *(f"abc-s0-{number}" for number in range(2, 9))]


def test_folder_that_cannot_be_made_names_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunError, match=r"cannot be written \(Not a directory\); choose another folder with output_dir="
    ):
        find_or_create(tmp_path / "file" / "runs", "abc-s0", resume=True)


# ------------------------------------------------------------------------------------------ attempts


def test_attempts_are_numbered_and_keep_what_the_last_one_measured(directory: RunDirectory) -> None:
    assert directory.attempt == 0
    assert directory.begin_attempt() == 1
    directory.metrics.write_text('{"step": 1}\n')
    write_json(directory.result, {"status": "failed"})
    write_json(directory.tracker, {"mlflow_run_id": "x"})
    directory.add_event("warning", "slow", step=1)
    directory.stop_file.touch()

    assert directory.begin_attempt() == 2
    first = directory.log_root / "attempt-1"
    assert (first / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert json.loads((first / "result.json").read_text()) == {"status": "failed"}
    # The new attempt starts clean, is not stopped by the old request, and goes on with events and tracker run.
    assert not directory.metrics.exists()
    assert directory.read_result() is None
    assert not directory.stop_file.exists()
    assert directory.tracker.exists()
    assert json.loads(directory.events.read_text())["text"] == "slow"
    assert directory.attempt_logs == directory.log_root / "attempt-2"
    assert directory.worker_log.parent.is_dir()


def test_tenth_attempt_comes_after_the_ninth(directory: RunDirectory) -> None:
    """As text, attempt-9 sorts after attempt-10."""
    assert [directory.begin_attempt() for _ in range(11)] == list(range(1, 12))


def test_events_are_appended_with_time_and_fields(directory: RunDirectory) -> None:
    before = time.time()
    directory.add_event("critical", "loss is not finite", rule="not_finite", step=7)
    directory.add_event("tracker", "offline")
    first, second = [json.loads(line) for line in directory.events.read_text().splitlines()]
    assert {key: first[key] for key in ("kind", "text", "rule", "step")} == {
        "kind": "critical",
        "text": "loss is not finite",
        "rule": "not_finite",
        "step": 7,
    }
    assert before <= first["time"] <= second["time"] <= time.time()


def test_folder_without_a_run_says_so(directory: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json, so it is not a run folder"):
        directory.read_config()


# ------------------------------------------------------------------------------------------ one owner


def test_second_owner_is_refused_until_the_first_is_done(directory: RunDirectory) -> None:
    lock = Lock(directory)
    lock.acquire()
    with pytest.raises(RunError, match=rf"going on in process {os.getpid()} on .*resume=never"):
        Lock(directory).acquire()
    lock.release()
    assert not directory.lock.exists()
    again = Lock(directory)
    again.acquire()
    again.release()


def test_live_process_keeps_its_run(directory: RunDirectory, owner: subprocess.Popen[str]) -> None:
    """However old its heartbeat is: on one host the process itself is asked."""
    os.utime(directory.lock, (0, 0))
    with pytest.raises(RunError, match=f"going on in process {owner.pid}"):
        Lock(directory).acquire()
    say(owner, "release")
    owner.wait(10)
    lock = Lock(directory)
    lock.acquire()
    lock.release()


@pytest.mark.parametrize("reaped", [True, False])
def test_dead_process_loses_its_run(reaped: bool, directory: RunDirectory, owner: subprocess.Popen[str]) -> None:
    """It ended without releasing; whether its parent has collected it or not (a zombie runs no more)."""
    say(owner, "die")
    if reaped:
        owner.wait(10)
    else:
        wait_for(lambda: rundir.owner_is_gone(owner.pid))
    assert directory.lock.exists()
    lock = Lock(directory)
    lock.acquire()
    assert json.loads(directory.lock.read_text())["pid"] == os.getpid()
    lock.release()
    assert list(directory.path.iterdir()) == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write_lock(directory: RunDirectory, owner: dict[str, Any] | str, age: float = 0.0) -> None:
    directory.lock.write_text(owner if isinstance(owner, str) else json.dumps(owner))
    os.utime(directory.lock, (time.time() - age,) * 2)


def test_number_of_a_dead_process_that_another_one_got_does_not_count(directory: RunDirectory) -> None:
    """Process numbers come again: this one runs, but it started at another time than the owner."""
    write_lock(directory, {"host": socket.gethostname(), "pid": os.getpid(), "start": "1"})
    lock = Lock(directory)
    lock.acquire()
    lock.release()


@pytest.mark.parametrize(
    "owner", [{"host": "elsewhere", "pid": 1, "start": "1"}, "", '{"host": "else'], ids=["host", "empty", "cut"]
)
def test_owner_that_cannot_be_asked_lives_as_long_as_its_heartbeat(
    owner: dict[str, Any] | str, directory: RunDirectory
) -> None:
    """Another host, or a lock that is being written or was cut by a crash: 119 s are young, 121 s are not."""
    assert STALE_SECONDS == 120
    write_lock(directory, owner, age=STALE_SECONDS - 1)
    with pytest.raises(RunError, match="this run is going on"):
        Lock(directory).acquire()
    write_lock(directory, owner, age=STALE_SECONDS + 1)
    lock = Lock(directory)
    lock.acquire()
    lock.release()


def test_heartbeat_keeps_the_lock_young(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "HEARTBEAT_SECONDS", 0.02)
    lock = Lock(directory)
    lock.acquire()
    os.utime(directory.lock, (0, 0))
    wait_for(lambda: directory.lock.stat().st_mtime > 0)
    lock.release()


def test_stale_lock_has_one_heir(
    directory: RunDirectory, owner: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes find the same dead owner; the slower one must not throw the quicker one's new lock away.

    The quicker one here takes the lock between the slower one's look at the owner and its next move.
    """
    say(owner, "die")
    owner.wait(10)
    judge, winners, rivals = rundir._is_alive, [], []

    def acquire(name: str) -> None:
        try:
            Lock(directory).acquire()
        except RunError:
            return
        winners.append(name)

    def judge_slowly(owner: Any, age: float) -> bool:
        monkeypatch.setattr(rundir, "_is_alive", judge)
        rivals.append(threading.Thread(target=acquire, args=("quicker",), daemon=True))
        rivals[0].start()
        rivals[0].join(1.0)  # where the look and the move are guarded, the rival waits for the slower one
        return judge(owner, age)

    monkeypatch.setattr(rundir, "_is_alive", judge_slowly)
    acquire("slower")
    rivals[0].join(10)
    assert len(winners) == 1
