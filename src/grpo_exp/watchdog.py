"""Ends a run in which nothing happens any more, and leaves the stacks that show where it hangs.

A collective that waits for a process that is gone, a server that no longer answers, a reward that never returns: each
would hold the allocation until its time is up. Every worker process has a watchdog of its own.
"""

from __future__ import annotations

import faulthandler
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from grpo_exp.settings.launch import WatchdogSettings

#: Steps whose median says how long a step takes.
NUM_RECENT_STEPS = 50
#: Fewer steps say nothing: the first ones compile, start engines and fill caches.
MIN_STEPS = 3
#: Time between the stacks and the end. All processes of a run hang, but not from the same moment on: the slowest must
#: have written its stacks before the first one ends.
GRACE_SECONDS = 10.0
_CHECK_SECONDS = 1.0
TRAINING = "training"


class Watchdog:
    """Watches one process: told of every sign of life, it calls `on_hang` when there has been none for too long.

    The stacks are written by a timer that needs no interpreter, so they come even from a process that hangs inside of a
    library. Time in which the whole process was suspended does not count.

    Args:
        settings: How long is too long.
        stacks: File for the stacks of all threads; it is there only where the process hung.
        on_hang: Called once, in a thread of its own, with the reason in one line, GRACE_SECONDS behind the stacks.
    """

    def __init__(self, settings: WatchdogSettings, stacks: Path, on_hang: Callable[[str], None]) -> None:
        self._settings = settings
        self._path = stacks
        self._on_hang = on_hang
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._stream: IO[str] | None = None
        self._phase = "starting"
        self._steps: deque[float] = deque(maxlen=NUM_RECENT_STEPS)
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self._settings.enabled:
            self._stream = self._path.open("w")
            self.on_phase("starting")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._stream is None:
            return
        with self._lock:
            faulthandler.cancel_dump_traceback_later()
            self._stream.close()
            if not self._path.stat().st_size:
                self._path.unlink()

    def on_phase(self, name: str) -> None:
        """Take note of a phase that began or went on: priming, evaluation, training."""
        with self._lock:
            self._phase = name
            self._sign_of_life()

    def on_step(self) -> None:
        """Take note that an optimizer step, or a batch of an evaluation, is done."""
        with self._lock:
            if self._phase == TRAINING:
                self._steps.append(time.monotonic() - self._last)
            self._sign_of_life()

    @property
    def limit_seconds(self) -> float:
        """How long there may be no sign of life just now."""
        if self._phase != TRAINING or len(self._steps) < MIN_STEPS:
            return self._settings.start_seconds
        return max(self._settings.min_seconds, self._settings.factor * statistics.median(self._steps))

    def _sign_of_life(self) -> None:
        self._last = time.monotonic()
        if self._stream is not None and not self._ended.is_set():
            faulthandler.dump_traceback_later(self.limit_seconds, file=self._stream)

    def _watch(self) -> None:
        checked = time.monotonic()
        while not self._ended.wait(_CHECK_SECONDS):
            now = time.monotonic()
            with self._lock:
                if now - checked > 5 * _CHECK_SECONDS:  # suspended, and so was what is waited for
                    self._last += now - checked
                    self._forget_stacks(now)
                silent, limit = now - self._last, self.limit_seconds
            checked = now
            if silent > limit + GRACE_SECONDS:
                self._on_hang(self._reason(limit))
                return

    def _forget_stacks(self, now: float) -> None:
        """Begin anew with the timer, which ran on while the process was suspended, and with what it has written.

        The front end takes stacks with nothing behind them for a process that hangs.
        """
        assert self._stream is not None
        if not self._ended.is_set():
            faulthandler.dump_traceback_later(max(1.0, self.limit_seconds - (now - self._last)), file=self._stream)
            self._stream.seek(0)
            self._stream.truncate(0)

    def _reason(self, limit: float) -> str:
        where = f"what each process was doing stands in {self._path.parent}/stacks-*.txt"
        if self._phase != TRAINING or len(self._steps) < MIN_STEPS:
            rule = "launch.watchdog.start_seconds"
            doing = "the first steps" if self._phase == TRAINING else self._phase
            return f"no sign of life for {limit:.0f} s in {doing} ({rule}); {where}"
        median = statistics.median(self._steps)
        return (
            f"no step for {limit:.0f} s, where the median takes {median:.3g} s (launch.watchdog: factor "
            f"{self._settings.factor:g}, at least {self._settings.min_seconds:g} s); {where}"
        )
