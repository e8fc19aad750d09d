"""Requests from outside to end: Ctrl-C, and the signals that SLURM and launchers send.

They become a STOP file in the run directory, which workers look for between their steps. So a request reaches all
processes of a run, whichever of them it was sent to.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

from grpo_exp.rundir import RunDirectory

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
#: What is said at the first request, where a second one ends everything.
STOPPING = "stopping after this step; once more to end at once"


class Requests:
    """Counts requests to end: at the first one the workers finish their step and stop."""

    def __init__(self, directory: RunDirectory, at_second: Callable[[], None] | None) -> None:
        self.count = 0
        self._directory = directory
        self._at_second = at_second
        self._told = False

    def handle(self, number: int, frame: object) -> None:
        """Count one; nothing is printed here, since it may come in the middle of printing."""
        self.count += 1
        if self.count == 1:
            self._directory.stop_file.touch()
        elif self._at_second is not None:
            self._at_second()

    def tell_once(self, message: Callable[[str], None], text: str = STOPPING) -> None:
        """Say once that the first one was understood."""
        if self.count and not self._told:
            self._told = True
            message(text)


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGUSR2 do inside what Ctrl-C does, a KeyboardInterrupt: for the time in which no worker runs."""
    previous = {number: signal.signal(number, signal.default_int_handler) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def heed_signals(directory: RunDirectory, at_second: Callable[[], None] | None = None) -> Iterator[Requests]:
    """Turn signals into requests for the run in `directory`.

    Args:
        directory: The run.
        at_second: Called inside the signal handler at each request after the first; None is nothing.
    """
    requests = Requests(directory, at_second)
    previous = {number: signal.signal(number, requests.handle) for number in _NUMBERS}
    try:
        yield requests
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
