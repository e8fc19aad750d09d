"""A run as it goes on, read from its folder: the same for workers in other processes, in this one, and elsewhere."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.console import shows_live_table
from grpo_exp.reporting.progress import ProgressView
from grpo_exp.reporting.tail import Tail
from grpo_exp.rundir import parse_event
from grpo_exp.tracking.metrics_log import parse_line

POLL_SECONDS = 0.2
#: Kinds of events that are for the reader at once. Warnings that no rule has found come at the end of a run.
SHOWN_AT_ONCE = frozenset({"explanation", "note"})


class LiveRun:
    """Shows new lines of `metrics.jsonl` and `events.jsonl`, and what `status.json` says, at each `refresh`.

    Args:
        metrics: The file with the curves; need not exist yet.
        status: The file with the current phase; need not exist.
        console: Where to print.
        total_steps: Optimizer steps of the run.
        component_names: Names of the reward components, in order.
        events: The file with the events; need not exist.
        so_far: Number of an attempt: show what stands in the files already, of the events those of this attempt and
            later ones. None: the run is about to start, and what is in the events has been told.
        shown_bytes: Of the curves, which an earlier attempt has shown.
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
        so_far: int | None = None,
        shown_bytes: int = 0,
    ) -> None:
        self._status = status
        self._view = ProgressView(total_steps, component_names, console, live=shows_live_table(console))
        self._metrics = Tail(metrics, offset=shown_bytes)
        self._events = None if events is None else Tail(events, from_start=so_far is not None)
        self._so_far = so_far
        self._latest: dict[Tail, float] = {}
        self._phase: tuple[str, int] | None = None

    def __enter__(self) -> LiveRun:
        if self._so_far is None:
            self._view.phase("starting the workers")
        return self

    def __exit__(self, *exception: object) -> None:
        self.refresh()
        self._view.close()

    def refresh(self) -> None:
        """Show what is new."""
        records = [record for line in self._metrics.read() if (record := parse_line(line)) is not None]
        self._view.update(*self._unseen(self._metrics, records))
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

    def expect(self, total_steps: int) -> None:
        """Take another number of steps for the whole run."""
        self._view.expect(total_steps)

    def message(self, text: str) -> None:
        """Print a line."""
        self._view.message(text)

    def _unseen(self, tail: Tail, records: list[Any]) -> list[Any]:
        """Leave out what was shown before its file was cut back or replaced: what is not newer than the last shown."""
        latest = self._latest.get(tail, float("-inf"))
        new = [record for record in records if record["time"] > latest] if tail.restarted else records
        self._latest[tail] = max([latest, *(record["time"] for record in new)])
        return new

    def _show_events(self) -> None:
        if self._events is None:
            return
        found = [event for line in self._events.read() if (event := parse_event(line)) is not None]
        for event in self._unseen(self._events, found):
            if event["attempt"] < (self._so_far or 0):
                continue
            if event["kind"] in SHOWN_AT_ONCE:
                self._view.message(event_text(event), event["time"])
            elif is_alert(event):
                self._view.message(finding_text(event), event["time"])
                self._view.message(f"  try: {event['advice']}", event["time"])

    def _show_phase(self) -> None:
        try:
            status = json.loads(self._status.read_text())
        except FileNotFoundError:
            return  # the workers have not begun, or are done
        phase = (status["phase"], status["done"])
        if phase != self._phase and status["phase"] != "training":
            self._view.phase(status["phase"], status["done"], status["total"])
        self._phase = phase


def is_finding(event: Mapping[str, Any]) -> bool:
    """Say whether a health rule has found it."""
    return {"rule", "action", "step", "since", "advice"} <= event.keys()


def is_alert(event: Mapping[str, Any]) -> bool:
    """Say whether an event is a finding that the reader is to be told of."""
    return is_finding(event) and event["kind"] in {"warning", "critical"} and event["action"] != "log"


def finding_text(event: Mapping[str, Any]) -> str:
    """Write a finding as one line: how bad, when, since when if that was earlier, and what."""
    since = f", since {event['since']}" if event["since"] < event["step"] else ""
    return f"{event['kind']} (step {event['step']}{since}): {event['text']}"


def event_text(event: Mapping[str, Any], title: str = "note") -> str:
    """Write an event as one line."""
    where = f" (step {event['step']})" if "step" in event else ""
    return f"{title}{where}: {event['text']}"
