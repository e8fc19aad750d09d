"""Runs of a sweep in subprocesses of this machine, so many at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpo_exp.sweeps.local.settings import Slot
from grpo_exp.sweeps.local.view import PoolView
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.states import TO_RETRY, PointStatus, exit_code_of, read_status

#: What runs a point; the words after it are `run-point SWEEP_DIR INDEX ...`.
COMMAND = (sys.executable, "-m", "grpo_exp", "sweep")
POLL_SECONDS = 0.2
#: A front end that was asked twice ends its workers politely, which takes up to 20 s; then it is ended itself.
_KILL_AFTER_SECONDS = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class _Running:
    status: PointStatus
    slot: Slot
    process: subprocess.Popen[bytes]


class Pool:
    """Starts points as slots become free, until all are done or it is asked to stop.

    Args:
        sweep: The sweep.
        chosen: Points to start, in this order, as they stood when they were chosen.
        slots: What each run at the same time gets.
        view: Shows how they get on.
    """

    def __init__(
        self, sweep: SweepDirectory, chosen: Sequence[PointStatus], slots: Sequence[Slot], view: PoolView
    ) -> None:
        self._sweep = sweep
        self._chosen = chosen
        self._waiting = deque(chosen)
        self._free = list(slots)
        self._running: list[_Running] = []
        self._view = view
        self._requests = 0
        self._told = 0
        self._kill_at: float | None = None

    def request_stop(self) -> None:
        """Count a request to end; called inside a signal handler, so nothing is done here."""
        self._requests += 1

    def run(self) -> int:
        """Return the exit code of the sweep as far as it was chosen: 1, 85, 3 or 0."""
        with self._view:
            while self._running or (self._waiting and not self._requests):
                self._heed_requests()
                self._fill()
                self._reap()
                self._view.refresh([(one.status.entry, one.process.pid) for one in self._running], len(self._waiting))
                time.sleep(POLL_SECONDS)
        statuses = [self._read(status) for status in self._chosen]
        self._view.summary(statuses)
        return exit_code_of(statuses)

    def _read(self, status: PointStatus) -> PointStatus:
        return read_status(self._sweep, status.entry, cancelled=self._sweep.read_cancelled())

    def _fill(self) -> None:
        while self._free and self._waiting and not self._requests:
            chosen = self._waiting.popleft()
            now = self._read(chosen)
            # Marks of a cancellation were taken away when it was chosen, so that one found here is new.
            if now.attempt != chosen.attempt or now.state not in TO_RETRY - {"cancelled"}:
                self._view.passed_over(now)  # another process has it, had it, or took it back
                continue
            self._start(chosen, self._free.pop(0))

    def _start(self, status: PointStatus, slot: Slot) -> None:
        entry = status.entry
        log = self._sweep.log(entry)
        log.parent.mkdir(exist_ok=True)
        command = [*COMMAND, "run-point", str(self._sweep.path), str(entry.index),
                   "--attempt", str(status.attempt)]  # fmt: skip
        if slot.cores:
            command += ["--cores", ",".join(map(str, slot.cores))]
        environment = {**os.environ} if slot.gpus is None else {**os.environ, "CUDA_VISIBLE_DEVICES": slot.gpus}
        with log.open("ab") as stream:
            # A session of its own: a Ctrl-C in the terminal reaches it through us only.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self._running.append(_Running(status, slot, process))
        self._view.started(entry)

    def _reap(self) -> None:
        for one in list(self._running):
            if one.process.poll() is not None:
                self._running.remove(one)
                self._free.append(one.slot)
                self._view.ended(self._read(one.status), one.process.returncode)

    def _heed_requests(self) -> None:
        """Hand requests on: once, the runs finish their step; twice, they are ended; then no more waiting."""
        while self._told < self._requests:
            self._told += 1
            self._view.stopping(self._told, len(self._running))
            self._signal(signal.SIGINT)
            if self._told == 2:
                self._kill_at = time.monotonic() + _KILL_AFTER_SECONDS
        if self._told > 2 or (self._kill_at is not None and time.monotonic() > self._kill_at):
            self._signal(signal.SIGKILL)  # workers end by themselves when they find the front end gone

    def _signal(self, number: signal.Signals) -> None:
        for one in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process.pid, number)


@contextlib.contextmanager
def heed_signals(pool: Pool) -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and SIGUSR2 into requests to end."""
    previous = {number: signal.signal(number, lambda *_: pool.request_stop()) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
