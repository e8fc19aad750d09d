"""Who owns a run: a lock file with a heartbeat, and how to tell a live owner from one that is gone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_exp.errors import RunError

#: A lock on another host is stale when its heartbeat is older than this; ours beats every HEARTBEAT_SECONDS.
STALE_SECONDS = 120.0
HEARTBEAT_SECONDS = 15.0


class OwnedError(RunError):
    """Somebody alive owns the run."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock file, and whether they can still be there."""

    state: Literal["none", "alive", "stale"]
    """`none` without a lock file; `stale` where the process has ended, or its heartbeat on another host has."""
    host: str | None = None
    """None where the file is being written just now, or was cut by a crash."""
    pid: int | None = None
    """Process number on that host."""
    age_seconds: float | None = None
    """Time since the last heartbeat; None without a lock file."""


def read_owner(path: Path) -> Owner:
    """Say who holds a lock file, without taking it.

    On the same host an owner is alive while its process is; on another host, while its heartbeat is fresh.

    Args:
        path: The lock file; it need not exist.
    """
    try:
        text, age = path.read_text(), time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return Owner("none")
    mark = _parse(text)
    return Owner("alive" if _is_alive(mark, age) else "stale", mark.get("host"), mark.get("pid"), age)


class Lock:
    """Exclusive ownership of what a lock file stands for, with a heartbeat.

    Args:
        path: The lock file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = {"host": socket.gethostname(), "pid": os.getpid(), "start": _process_start(os.getpid())}
        self._released = threading.Event()

    def acquire(self) -> None:
        """Become the owner.

        Raises:
            OwnedError: Somebody alive owns the run.
            RunError: The folder cannot be written.
        """
        try:
            with self._alone():
                self._take_away_if_stale()
                self._create()
        except OSError as error:
            raise RunError(
                f"{self._path.parent}: cannot be written ({error.strerror}); get the right to write there, or choose "
                "another folder with output_dir=FOLDER"
            ) from error
        threading.Thread(target=self._beat, name="run-lock-heartbeat", daemon=True).start()

    def is_held(self) -> bool:
        """Say whether the lock is still ours: others take it from an owner whose heart has stopped for long."""
        try:
            return _parse(self._path.read_text()) == self._mark
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the run free; a lock that another one took away meanwhile stays theirs."""
        self._released.set()
        if self.is_held():
            self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one taker at a time look at the owner and act on it: another one's new lock is not thrown away."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # some network file systems have no flock
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _create(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:  # on a file system without flock another one can come between
            raise OwnedError(
                f"{self._path.parent}: another process took this run a moment ago; look at it with grpo-exp show, or "
                "start another beside it with resume=never"
            ) from None
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump(self._mark, stream)
        except BaseException:  # an empty lock on a full disk would keep everybody out until it is stale
            self._path.unlink(missing_ok=True)
            raise

    def _take_away_if_stale(self) -> None:
        owner = read_owner(self._path)
        if owner.state == "alive":
            who = "another process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
            raise OwnedError(
                f"{self._path.parent}: this run is going on in {who}; wait for it, stop it, or start another beside it "
                "with resume=never"
            )
        self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            # A network file system may fail for a while: the run goes on, and so does the heart.
            with contextlib.suppress(OSError):
                if not self.is_held():
                    return  # released, taken away, or the run's folder was removed
                os.utime(self._path)


def owner_is_gone(pid: int) -> bool:
    """Say whether a process of this host has ended."""
    return _process_start(pid) is None


def _parse(text: str) -> dict[str, Any]:
    """Read a lock file's content; nothing where it is being written just now, or was cut by a crash."""
    try:
        mark = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return mark if isinstance(mark, dict) else {}


def _is_alive(mark: Mapping[str, Any], age_seconds: float) -> bool:
    if mark.get("host") == socket.gethostname() and "pid" in mark:
        start = _process_start(int(mark["pid"]))
        return start is not None and start == mark.get("start")
    return age_seconds < STALE_SECONDS


def _process_start(pid: int) -> str | None:
    """Return a process's start time in clock ticks since boot.

    It tells a process from a later one that got the same number.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]
