"""The process that feeds one tracker beside a run: `python -m grpo_exp.tracking.copier RUN TRACKER ATTEMPT OWNER_PID`.

It reads what the run writes into its directory, so nothing that a tracker does reaches the training. On its standard
input it is told `finish STATUS SECONDS`; the end of the input, or of its parent, means that the trainer is dead. It
always ends: after what it was given to finish, or at once when a new attempt of the run begins.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.copy_state import held
from grpo_exp.tracking.copying import RunCopy, describe
from grpo_exp.tracking.tracker import RunStatus

_LOOK_SECONDS = 0.25
#: Tries of a tracker that does not answer once the run has ended; one that only is slow has all of the time.
_TRIES_AT_END = 3
_FIRST_RETRY_SECONDS = 1.0
#: Below the trainer, which on a small machine shares the cores with this process.
_NICENESS = 5


class Notices:
    """What the user is told: one warning for the whole run, and when it is over.

    Args:
        directory: The run, in whose events it is written.
        title: How the tracker is called.
        attempt: The attempt that this process belongs to; another one's events are not written.
    """

    def __init__(self, directory: RunDirectory, title: str, attempt: int) -> None:
        self._directory = directory
        self._title = title
        self._attempt = attempt
        self._told: Literal["nothing", "trouble", "recovery"] = "nothing"
        self._left_out: set[str] = set()

    def failed(self, what: str, *, is_final: bool = False) -> None:
        """Warn, where no warning stands already; of a second outage only if it is the last word."""
        if self._told == "trouble" or (self._told == "recovery" and not is_final):
            return
        self._told = "trouble"
        self._add("tracker", f"{self._title} does not get the curves: {what}. {self._advice(is_final)}")

    def works(self) -> None:
        """Say that what was warned of is over."""
        if self._told == "trouble":
            self._told = "recovery"
            self._add("note", f"{self._title} gets the curves again, also those that it had missed")

    def left_out(self, names: Sequence[str]) -> None:
        """Tell of tables that are damaged, each once."""
        for name in dict.fromkeys(names):
            if name not in self._left_out:
                self._left_out.add(name)
                self._add("tracker", f"{self._title} does not get {name}: it is damaged; everything else is sent")

    def _advice(self, is_final: bool) -> str:
        tried = "" if is_final else "The run goes on, and it is tried again until the run ends. "
        return f"{tried}metrics.jsonl has every value; send what is missing with grpo-exp sync {self._directory.path}"

    def _add(self, kind: str, text: str) -> None:
        if self._directory.attempt == self._attempt:
            self._directory.add_event(kind, text)


class CopyJob:
    """Copies until it is told to end; runs in a thread, since a call of a backend may never return."""

    def __init__(self, copy: RunCopy, notices: Notices, *, poll_seconds: float, max_retry_seconds: float) -> None:
        self._copy = copy
        self._notices = notices
        self._poll_seconds = poll_seconds
        self._max_retry_seconds = max_retry_seconds
        self._ending = threading.Event()
        self._status: RunStatus | None = None
        self.has_ended = False

    def end(self, status: RunStatus) -> None:
        """Send what is left, mark the tracker's run, and come to an end."""
        self._status = status
        self._ending.set()

    def work(self, lock: Path) -> None:
        """Copy until the end; the copier of an earlier attempt may still hold the lock for a moment."""
        while True:
            with held(lock, wait=False) as is_ours:
                if is_ours:
                    self._work()
                    self.has_ended = True
                    return
            time.sleep(_LOOK_SECONDS)

    def _work(self) -> None:
        retry_seconds, failures_at_end = _FIRST_RETRY_SECONDS, 0
        while True:
            is_ending = self._ending.is_set()
            try:
                self._copy_once(is_ending=is_ending)
            # Every exception, on purpose: whatever goes wrong in a backend (a server that is down, a full disk, a
            # missing login, a bug) is told and tried again. Client libraries call sys.exit on a failed login.
            except (Exception, SystemExit) as error:
                traceback.print_exc()
                failures_at_end += is_ending
                has_given_up = failures_at_end == _TRIES_AT_END
                self._notices.failed(describe(error), is_final=has_given_up)
                self._copy.abandon()
                if has_given_up:
                    return
                pause = _FIRST_RETRY_SECONDS if is_ending else retry_seconds
                retry_seconds = min(2 * retry_seconds, self._max_retry_seconds)
            else:
                self._notices.works()
                self._notices.left_out(self._copy.unreadable)
                if is_ending:
                    return
                pause, retry_seconds = self._poll_seconds, _FIRST_RETRY_SECONDS
            if is_ending:
                time.sleep(pause)
            else:
                self._ending.wait(pause)

    def _copy_once(self, *, is_ending: bool) -> None:
        if is_ending:
            self._copy.finish(self._status, time.time())
        else:
            self._copy.send_new()


class Orders:
    """What the trainer says, or its death.

    Args:
        owner: Process number of the trainer, which started this process.
        seconds: Time to finish in where the trainer is dead.
    """

    def __init__(self, owner: int, seconds: float) -> None:
        self._owner = owner
        self._seconds = seconds
        self._text = b""

    def next(self) -> tuple[RunStatus, float] | None:
        """Wait a moment for the order to finish; return how the run ended and the seconds to finish in, or None."""
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_SECONDS)
        if readable:
            piece = os.read(sys.stdin.fileno(), 4096)
            self._text += piece
            if not piece:
                return "killed", self._seconds
        line, newline, _ = self._text.partition(b"\n")
        if newline:
            _, status, seconds = line.decode().split()
            assert status in get_args(RunStatus)
            return status, float(seconds)  # pyright: ignore[reportReturnType]
        # A child of the trainer may have inherited the other end of the input, and keep it open.
        return ("killed", self._seconds) if os.getppid() != self._owner else None


def main() -> None:
    """Feed the tracker in the second argument from the run in the first."""
    path, name, attempt, owner = sys.argv[1:]
    _heed_second_signal()
    os.nice(_NICENESS)
    directory = RunDirectory(Path(path))
    settings = RunSettings.model_validate(directory.read_config())
    tracker = settings.tracker
    copy = RunCopy(directory, settings, name)
    notices = Notices(directory, copy.title, int(attempt))
    job = CopyJob(copy, notices, poll_seconds=tracker.poll_seconds, max_retry_seconds=tracker.max_retry_seconds)
    worker = threading.Thread(target=job.work, args=(directory.tracker_lock(name),), daemon=True)
    worker.start()
    orders = Orders(int(owner), tracker.finish_timeout_seconds)
    deadline: float | None = None
    code = 0
    while worker.is_alive() and directory.attempt == int(attempt):
        if deadline is None:
            order = orders.next()
            if order is not None:
                deadline = time.monotonic() + order[1]
                job.end(order[0])
        elif time.monotonic() > deadline:
            notices.failed("it had not taken everything when the time to finish was over", is_final=True)
            break
        else:
            worker.join(_LOOK_SECONDS)
    else:
        code = int(not worker.is_alive() and not job.has_ended)  # a fault of ours, which the trainer tells
    # Whatever a client library left behind (threads, handlers of the exit) must not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _heed_second_signal() -> None:
    """Ignore the first signal to end, which the whole job gets and the trainer heeds; at the second end at once."""
    count = 0

    def handle(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count > 1:
            os._exit(1)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, handle)


if __name__ == "__main__":
    main()
