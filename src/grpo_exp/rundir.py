"""The run directory: the only module that knows file names, locks and the STOP file in it.

Everything that a report, a resume or a re-run needs lies here; `result.json` is written last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.errors import ConfigError, RunError

#: A lock on another host is stale when its heartbeat is older than this; ours beats every HEARTBEAT_SECONDS.
STALE_SECONDS = 120.0
HEARTBEAT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths in one run's folder, and what is read from and written to it as a whole."""

    path: Path

    @property
    def run_id(self) -> str:
        """`<hash8>-s<seed>`, with `-2`, `-3` for runs that were started beside it."""
        return self.path.name

    @property
    def config_json(self) -> Path:
        """The resolved settings, as workers read them."""
        return self.path / "config.json"

    @property
    def config_yaml(self) -> Path:
        """The resolved settings, as people read them."""
        return self.path / "config.yaml"

    @property
    def overrides(self) -> Path:
        """The words that were typed after the command, one a line."""
        return self.path / "overrides.txt"

    @property
    def provenance(self) -> Path:
        """Commit, versions, machine and command."""
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        """All curves, one record a step."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """Health findings, restarts, skipped things."""
        return self.path / "events.jsonl"

    @property
    def tracker(self) -> Path:
        """Ids to resume the same tracker run."""
        return self.path / "tracker.json"

    @property
    def result(self) -> Path:
        """How the run ended."""
        return self.path / "result.json"

    @property
    def curves(self) -> Path:
        """The picture of the curves."""
        return self.path / "plots" / "curves.png"

    @property
    def status(self) -> Path:
        """What the workers are doing just now; gone when they are done."""
        return self.path / "status.json"

    def held_out_samples(self, when: str) -> Path:
        """Held-out completions with their scores, before or after training."""
        return self.path / "completions" / f"held_out_{when}.jsonl"

    @property
    def model(self) -> Path:
        """The trained model, in transformers' format."""
        return self.path / "model"

    @property
    def stop_file(self) -> Path:
        """Where it exists, workers stop after the current step."""
        return self.path / "STOP"

    @property
    def lock(self) -> Path:
        """Who owns the run; its modification time is the heartbeat."""
        return self.path / "lock.json"

    @property
    def log_root(self) -> Path:
        """One folder per attempt."""
        return self.path / "logs"

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0 before the first."""
        numbers = [int(entry.name.removeprefix("attempt-")) for entry in self.log_root.glob("attempt-*")]
        return max(numbers, default=0)

    @property
    def attempt_logs(self) -> Path:
        """Folder of the newest attempt's logs."""
        return self.log_root / f"attempt-{self.attempt}"

    @property
    def worker_log(self) -> Path:
        """What the worker processes of the newest attempt printed."""
        return self.attempt_logs / "worker.log"

    def begin_attempt(self) -> int:
        """Start a new attempt; what an earlier unfinished one measured moves into its log folder."""
        previous = self.attempt_logs if self.attempt else None
        if previous is not None:
            for path in (self.metrics, self.result):
                if path.exists():
                    path.replace(previous / path.name)
        self.stop_file.unlink(missing_ok=True)
        number = self.attempt + 1
        (self.log_root / f"attempt-{number}").mkdir(parents=True)
        return number

    def read_result(self) -> dict[str, Any] | None:
        """Return how the run ended, or None while it has not."""
        return json.loads(self.result.read_text()) if self.result.is_file() else None

    def read_config(self) -> dict[str, Any]:
        """Return the resolved settings.

        Raises:
            ConfigError: The folder holds no run.
        """
        if not self.config_json.is_file():
            raise ConfigError(f"{self.path}: holds no config.json, so it is not a run folder; give the folder of a run")
        return json.loads(self.config_json.read_text())

    def add_event(self, kind: str, text: str, **fields: Any) -> None:
        """Append one event."""
        record = {"time": time.time(), "kind": kind, "text": text, **fields}
        with self.events.open("a") as stream:
            stream.write(json.dumps(record) + "\n")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text so that a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as stream:
            os.fchmod(descriptor, 0o644)  # mkstemp made it private; a group looks at its runs together
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class Lock:
    """Exclusive ownership of a run directory, with a heartbeat.

    On the same host an owner is alive while its process is; on another host, while its heartbeat is fresh.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._path = directory.lock
        self._released = threading.Event()

    def acquire(self) -> None:
        """Become the owner.

        Raises:
            RunError: Somebody alive owns the run.
        """
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "start": _process_start(os.getpid())}
        with self._alone():
            self._take_away_if_stale()
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:  # on a file system without flock another one can come between
                raise RunError(f"{self._path}: another process took this run; see grpo-exp show") from None
            with os.fdopen(descriptor, "w") as stream:
                json.dump(owner, stream)
        threading.Thread(target=self._beat, name="run-lock-heartbeat", daemon=True).start()

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

    def release(self) -> None:
        """Give the run free."""
        self._released.set()
        self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                return  # released, or the run's folder was removed

    def _take_away_if_stale(self) -> None:
        try:
            owner, age = json.loads(self._path.read_text()), time.time() - self._path.stat().st_mtime
        except FileNotFoundError:
            return
        except json.JSONDecodeError:
            owner, age = (
                {},
                time.time() - self._path.stat().st_mtime,
            )  # created a moment ago, or cut by a crash
        if _is_alive(owner, age):
            raise RunError(
                f"{self._path.parent}: this run is going on in process {owner.get('pid')} on "
                f"{owner.get('host')}; wait for it, stop it, or start another beside it with resume=never"
            )
        self._path.unlink(missing_ok=True)


def _is_alive(owner: Mapping[str, Any], age_seconds: float) -> bool:
    if owner.get("host") == socket.gethostname() and "pid" in owner:
        start = _process_start(int(owner["pid"]))
        return start is not None and start == owner.get("start")
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


def owner_is_gone(pid: int) -> bool:
    """Say whether the process that started us has ended."""
    return _process_start(pid) is None


def find_or_create(root: Path, run_id: str, *, resume: bool) -> RunDirectory:
    """Return the directory of a run: the one of this id, or with `resume=False` a new one beside it.

    Raises:
        RunError: The folder cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if resume:
            path = root / run_id
            path.mkdir(exist_ok=True)
            return RunDirectory(path)
        number = 1
        while True:
            path = root / (run_id if number == 1 else f"{run_id}-{number}")
            try:
                path.mkdir()
                return RunDirectory(path)
            except FileExistsError:
                number += 1
    except OSError as error:
        raise RunError(
            f"{root}: cannot be written ({error.strerror}); choose another folder with output_dir=FOLDER"
        ) from error
