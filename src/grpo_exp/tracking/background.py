"""Run a tracker in its own thread, so that it can be slow, down or broken without the run noticing."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from grpo_exp.tracking.metrics_log import MetricsRecord
from grpo_exp.tracking.tracker import TRACKER_THREAD_NAME, RunInfo, RunStatus, Tracker

#: About a hundred thousand floats, a few megabytes; a tracker that is this far behind will not catch up.
MAX_QUEUED_RECORDS = 2000
DEFAULT_FINISH_TIMEOUT_SECONDS = 30.0


class BackgroundTracker:
    """Feed a tracker from a daemon thread: no fault or delay of the backend reaches the caller.

    The backend is imported and started inside the thread too: importing MLflow takes seconds.

    Args:
        tracker: The backend, not started.
        on_warning: Called at most once in the life of this object, possibly from the thread, with a text for
            the user: what happened, that `metrics.jsonl` is complete, and what to do.
        max_queued_records: How far the backend may fall behind before records are dropped.
    """

    def __init__(
        self,
        tracker: Tracker,
        on_warning: Callable[[str], None],
        *,
        max_queued_records: int = MAX_QUEUED_RECORDS,
    ) -> None:
        self._tracker = tracker
        self._on_warning = on_warning
        self._queue: queue.Queue[MetricsRecord | RunStatus] = queue.Queue(max_queued_records)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._warned = False
        self._closed = False
        self._num_dropped = 0

    @property
    def num_dropped(self) -> int:
        """How many records were dropped so far, without those that still wait; none is lost from the file."""
        return self._num_dropped

    def start(self, info: RunInfo, on_started: Callable[[dict[str, str]], None] | None = None) -> None:
        """Start the thread and return at once.

        Args:
            info: Handed to the backend.
            on_started: Called from the thread with the ids to keep in `tracker.json`.
        """
        assert self._thread is None, "a tracker is started once"
        self._thread = threading.Thread(
            target=self._work, args=(info, on_started), name=TRACKER_THREAD_NAME, daemon=True
        )
        self._thread.start()

    def log(self, record: MetricsRecord) -> None:
        """Queue one record; never waits and never raises."""
        if self._closed:
            self._drop(1)
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._drop(1)
            self._warn(f"{self._queue.maxsize} records wait already")

    def finish(self, status: RunStatus, timeout_seconds: float = DEFAULT_FINISH_TIMEOUT_SECONDS) -> None:
        """Send what is queued, mark the run as ended, and give up after the timeout."""
        if self._closed or self._thread is None:
            self._closed = True
            return
        self._closed = True
        deadline = time.monotonic() + timeout_seconds
        with contextlib.suppress(queue.Full):
            self._queue.put(status, timeout=timeout_seconds)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"it had not taken all records {timeout_seconds:g} s after the end of the run")

    def open_command(self) -> str:
        """Return the shell command that shows the curves."""
        return self._tracker.open_command()

    def _work(self, info: RunInfo, on_started: Callable[[dict[str, str]], None] | None) -> None:
        # Every exception is caught here, on purpose: whatever goes wrong in a tracker (a server that is down,
        # a full disk, a missing login, a bug) must cost the curves in that tracker and nothing else.
        # SystemExit is among them since client libraries call sys.exit on a failed login.
        failed = False
        try:
            ids = self._tracker.start(info)
            if on_started is not None:
                on_started(ids)
        except (Exception, SystemExit) as error:
            failed = True
            self._warn(_describe(error))
        while not isinstance(item := self._queue.get(), str):
            if failed:
                self._drop(1)
                continue
            try:
                self._tracker.log(item)
            except (Exception, SystemExit) as error:
                failed = True
                self._drop(1)
                self._warn(_describe(error))
        try:
            # Also after a fault: a run that was opened must not stay open, nor the next job's land in it.
            self._tracker.finish(item)
        except (Exception, SystemExit) as error:
            self._warn(_describe(error))

    def _drop(self, count: int) -> None:
        with self._lock:
            self._num_dropped += count

    def _warn(self, what: str) -> None:
        with self._lock:
            if self._warned:
                return
            self._warned = True
        text = (
            f"{self._tracker.name} does not get the curves: {what}. The run goes on, and metrics.jsonl has "
            f"every value. Check the settings under `tracker`, or use tracker=none."
        )
        # A console that fails must not reach log(), which the training loop calls.
        with contextlib.suppress(Exception):
            self._on_warning(text)


def _describe(error: BaseException) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line[:300]}" if first_line else type(error).__name__
