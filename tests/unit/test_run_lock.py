"""One owner of a run: who is alive, who is not, and who may take over."""

from __future__ import annotations

import errno
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

from grpo_exp import run_lock
from grpo_exp.errors import RunError
from grpo_exp.run_lock import STALE_SECONDS, Lock, OwnedError, Owner, read_owner
from grpo_exp.rundir import RunDirectory, find_or_create

#: Takes the lock of its argument, says so, and ends when its standard input does.
OWNER = """
import os, sys
from pathlib import Path
from grpo_exp.run_lock import Lock
lock = Lock(Path(sys.argv[1]))
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
        [sys.executable, "-c", OWNER, str(directory.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def test_second_owner_is_refused_until_the_first_is_done(directory: RunDirectory) -> None:
    lock = Lock(directory.lock)
    lock.acquire()
    with pytest.raises(OwnedError, match=rf"going on in process {os.getpid()} on .*resume=never"):
        Lock(directory.lock).acquire()
    lock.release()
    assert not directory.lock.exists()
    again = Lock(directory.lock)
    again.acquire()
    again.release()


def test_live_process_keeps_its_run(directory: RunDirectory, owner: subprocess.Popen[str]) -> None:
    """However old its heartbeat is: on one host the process itself is asked."""
    os.utime(directory.lock, (0, 0))
    with pytest.raises(OwnedError, match=f"going on in process {owner.pid}"):
        Lock(directory.lock).acquire()
    say(owner, "release")
    owner.wait(10)
    lock = Lock(directory.lock)
    lock.acquire()
    lock.release()


@pytest.mark.parametrize("reaped", [True, False])
def test_dead_process_loses_its_run(reaped: bool, directory: RunDirectory, owner: subprocess.Popen[str]) -> None:
    """It ended without releasing; whether its parent has collected it or not (a zombie runs no more)."""
    say(owner, "die")
    if reaped:
        owner.wait(10)
    else:
        wait_for(lambda: run_lock.owner_is_gone(owner.pid))
    assert directory.lock.exists()
    lock = Lock(directory.lock)
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
    lock = Lock(directory.lock)
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
    with pytest.raises(OwnedError, match="this run is going on"):
        Lock(directory.lock).acquire()
    write_lock(directory, owner, age=STALE_SECONDS + 1)
    lock = Lock(directory.lock)
    lock.acquire()
    lock.release()


def test_heartbeat_keeps_the_lock_young(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "HEARTBEAT_SECONDS", 0.02)
    lock = Lock(directory.lock)
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
    judge, winners, rivals = run_lock._is_alive, [], []

    def acquire(name: str) -> None:
        try:
            Lock(directory.lock).acquire()
        except OwnedError:
            return
        winners.append(name)

    def judge_slowly(owner: Any, age: float) -> bool:
        monkeypatch.setattr(run_lock, "_is_alive", judge)
        rivals.append(threading.Thread(target=acquire, args=("quicker",), daemon=True))
        rivals[0].start()
        rivals[0].join(1.0)  # where the look and the move are guarded, the rival waits for the slower one
        return judge(owner, age)

    monkeypatch.setattr(run_lock, "_is_alive", judge_slowly)
    acquire("slower")
    rivals[0].join(10)
    assert len(winners) == 1


# ------------------------------------------------------------------------------------------ asking for the owner


def test_lock_that_nobody_holds_has_no_owner(directory: RunDirectory) -> None:
    assert read_owner(directory.lock) == Owner("none")


def test_owner_is_told_while_it_lives_and_after_it_died(directory: RunDirectory, owner: subprocess.Popen[str]) -> None:
    """Asking takes nothing away: the lock of a dead owner still stands after it."""
    found = read_owner(directory.lock)
    assert (found.state, found.host, found.pid) == ("alive", socket.gethostname(), owner.pid)
    say(owner, "die")
    owner.wait(10)
    found = read_owner(directory.lock)
    assert (found.state, found.host, found.pid) == ("stale", socket.gethostname(), owner.pid)
    assert directory.lock.exists()


def test_owner_on_another_host_is_judged_by_its_heartbeat(directory: RunDirectory) -> None:
    for age, state in ((STALE_SECONDS - 1, "alive"), (STALE_SECONDS + 1, "stale")):
        write_lock(directory, {"host": "elsewhere", "pid": 7, "start": "1"}, age=age)
        found = read_owner(directory.lock)
        assert (found.state, found.host, found.pid) == (state, "elsewhere", 7)
        assert found.age_seconds == pytest.approx(age, abs=5)


# ------------------------------------------------------------------------------------------ taken away, or no disk


def test_owner_whose_lock_was_taken_away_leaves_the_new_one_alone(directory: RunDirectory) -> None:
    """A machine was suspended for so long that another one took its run; it must not give that one's lock free."""
    lock = Lock(directory.lock)
    lock.acquire()
    assert lock.is_held()
    write_lock(directory, {"host": "elsewhere", "pid": 7, "start": "1"})
    assert not lock.is_held()
    lock.release()
    assert read_owner(directory.lock).host == "elsewhere"


def test_heart_of_an_owner_that_lost_its_lock_does_not_beat_for_the_new_one(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "HEARTBEAT_SECONDS", 0.02)
    before, lock = set(threading.enumerate()), Lock(directory.lock)
    lock.acquire()
    (heart,) = set(threading.enumerate()) - before
    write_lock(directory, {"host": "elsewhere", "pid": 7, "start": "1"}, age=1000)
    heart.join(10)
    assert not heart.is_alive()
    assert read_owner(directory.lock).state == "stale"


def test_heart_beats_on_when_the_disk_fails_for_a_while(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale file handle of a network file system at the first beat; the second one is good."""
    monkeypatch.setattr(run_lock, "HEARTBEAT_SECONDS", 0.02)
    touch, faults = os.utime, [OSError(errno.ESTALE, os.strerror(errno.ESTALE))]

    def fail_once(path: Path, *times: Any) -> None:
        if faults:
            raise faults.pop()
        touch(path, *times)

    lock = Lock(directory.lock)
    lock.acquire()
    touch(directory.lock, (0, 0))
    monkeypatch.setattr(os, "utime", fail_once)
    wait_for(lambda: directory.lock.stat().st_mtime > 0)
    assert not faults
    lock.release()


def test_file_system_without_flock_still_has_one_owner(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating the file exclusively is enough where nobody was there before."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_lock.fcntl, "flock", unsupported)
    lock = Lock(directory.lock)
    lock.acquire()
    with pytest.raises(OwnedError):
        Lock(directory.lock).acquire()
    lock.release()


@pytest.mark.parametrize("folder", ["gone", "/proc/self"])
def test_folder_in_which_no_lock_can_be_made_names_the_fix(folder: str, tmp_path: Path) -> None:
    """A folder that was removed, and one in which not even root may create files."""
    with pytest.raises(RunError, match=r"cannot be written \(.*\); .*output_dir=") as caught:
        Lock(tmp_path / folder / "lock.json").acquire()
    assert not isinstance(caught.value, OwnedError)


def test_full_disk_leaves_no_empty_lock(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell whose it is, so it would keep everybody out for two minutes."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(run_lock.json, "dump", full)
        with pytest.raises(RunError, match="No space left on device"):
            Lock(directory.lock).acquire()
    assert not directory.lock.exists()
