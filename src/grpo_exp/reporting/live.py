"""A run as it goes on, read from its folder: the same for workers in other processes and in this one."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from grpo_exp.reporting.progress import POLL_SECONDS, ProgressView, feed


class LiveRun:
    """Shows new lines of `metrics.jsonl` and what `status.json` says, at each `refresh`.

    Args:
        metrics: The file with the curves; need not exist yet.
        status: The file with the current phase; need not exist.
        console: Where to print.
        total_steps: Optimizer steps of the run.
        component_names: Names of the reward components, in order.
    """

    def __init__(
        self,
        metrics: Path,
        status: Path,
        console: Console,
        *,
        total_steps: int,
        component_names: Sequence[str],
    ) -> None:
        self._metrics = metrics
        self._status = status
        self._view = ProgressView(total_steps, component_names, console)
        self._offset = 0
        self._phase: tuple[str, int] | None = None

    def __enter__(self) -> LiveRun:
        self._view.phase("starting the workers")
        return self

    def __exit__(self, *exception: object) -> None:
        self.refresh()
        self._view.close()

    def refresh(self) -> None:
        """Show what is new."""
        self._offset = feed(self._metrics, self._view, self._offset)
        self._show_phase()

    @contextlib.contextmanager
    def refreshed_beside(self, also: Callable[[], None]) -> Iterator[None]:
        """Refresh in a thread of its own: for callers whose main thread is the worker.

        Args:
            also: Called before each refresh, in that thread.
        """
        ended = threading.Event()

        def refresh() -> None:
            while not ended.wait(POLL_SECONDS):
                also()
                self.refresh()

        watcher = threading.Thread(target=refresh, name="live-view", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def message(self, text: str) -> None:
        """Print a line."""
        self._view.message(text)

    def _show_phase(self) -> None:
        try:
            status = json.loads(self._status.read_text())
        except FileNotFoundError:
            return  # the workers have not begun, or are done
        phase = (status["phase"], status["done"])
        if phase != self._phase and status["phase"] != "training":
            self._view.phase(status["phase"], status["done"], status["total"])
        self._phase = phase
