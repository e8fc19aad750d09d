"""The trainer's side of its trackers: start a copier for each, and tell it how the run ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.tracking.build import active_trackers
from grpo_exp.tracking.tracker import RunStatus

#: What of the time to finish is kept for the end of the processes themselves.
_MARGIN = 0.1
_POLL_SECONDS = 0.05


class TrackerFeed:
    """The copiers of a run, each a process in a session of its own, which no Ctrl-C in the terminal reaches."""

    def __init__(self, directory: RunDirectory, settings: TrackerSettings) -> None:
        self._directory = directory
        self._attempt = directory.attempt
        self._timeout_seconds = settings.finish_timeout_seconds
        self._processes = {name: self._start(name) for name in active_trackers(settings)}

    def look(self) -> None:
        """Tell of copiers that have ended by themselves, each once; costs microseconds."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self._tell_lost(name, f"its process ended by itself with exit code {process.returncode}")

    def finish(self, status: RunStatus) -> None:
        """Have everything sent and the tracker runs marked; give up after the time that the settings allow."""
        self.look()
        deadline = time.monotonic() + self._timeout_seconds
        for process in self._processes.values():
            assert process.stdin is not None
            # It may have ended just now; whether it did its work is told by its exit code.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"finish {status} {self._timeout_seconds * (1 - _MARGIN)}\n".encode())
                process.stdin.flush()
        for name, process in list(self._processes.items()):
            if not _has_ended(process, deadline):
                self._tell_lost(name, "its process did not end in time")
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            elif process.returncode:
                self._tell_lost(name, f"its process ended with exit code {process.returncode}")
            _close_input(process)
        self._processes = {}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        directory = self._directory
        words = [str(directory.path), name, str(directory.attempt), str(os.getpid())]
        with (directory.attempt_logs / f"tracker-{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "grpo_exp.tracking.copier", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _tell_lost(self, name: str, what: str) -> None:
        process = self._processes.pop(name)
        _close_input(process)
        if self._directory.attempt != self._attempt:
            return  # the run is somebody else's by now, and so are its trackers and its events
        text = (
            f"{name} does not get the curves any more: {what}. metrics.jsonl has every value; send what is missing "
            f"with grpo-exp sync {self._directory.path}"
        )
        self._directory.add_event("tracker", text)


def _has_ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # what was not read
        process.stdin.close()
