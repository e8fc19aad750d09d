"""A run as it goes on, read from its folder: the same for workers in other processes and in this one."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.reporting.progress import POLL_SECONDS, ProgressView, feed, new_lines
from grpo_exp.rundir import parse_event

#: Kinds of events that are for the reader at once; findings are told at the end of the run.
SHOWN_AT_ONCE = frozenset({"explanation", "note"})


class LiveRun:
    """Shows new lines of `metrics.jsonl` and what `status.json` says, at each `refresh`.

    Args:
        metrics: The file with the curves; need not exist yet.
        status: The file with the current phase; need not exist.
        console: Where to print.
        total_steps: Optimizer steps of the run.
        component_names: Names of the reward components, in order.
        events: The file with the events; what stands in it now has been told.
    """

    def __init__(
        self,
        metrics: Path,
        status: Path,
        console: Console,
        *,
        total_steps: int,
        component_names: Sequence[str],
        events: Path | None = None,
    ) -> None:
        self._metrics = metrics
        self._status = status
        self._view = ProgressView(total_steps, component_names, console)
        self._offset = 0
        self._events = events
        self._events_offset = events.stat().st_size if events is not None and events.exists() else 0
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
        self._show_events()
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

    def _show_events(self) -> None:
        if self._events is None:
            return
        lines, self._events_offset = new_lines(self._events, self._events_offset)
        for event in map(parse_event, lines):
            if event is not None and event["kind"] in SHOWN_AT_ONCE:
                self.message(event_text(event))

    def _show_phase(self) -> None:
        try:
            status = json.loads(self._status.read_text())
        except FileNotFoundError:
            return  # the workers have not begun, or are done
        phase = (status["phase"], status["done"])
        if phase != self._phase and status["phase"] != "training":
            self._view.phase(status["phase"], status["done"], status["total"])
        self._phase = phase


def event_text(event: Mapping[str, Any]) -> str:
    """Write an event that is shown at once as one line."""
    where = f" (step {event['step']})" if "step" in event else ""
    return f"note{where}: {event['text']}"
