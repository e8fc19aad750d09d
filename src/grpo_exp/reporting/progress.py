"""What a person sees while a run trains: a table that is updated in place, or plain lines in a log file."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grpo_exp.reporting.columns import (
    ABSENT,
    Column,
    aligned,
    build_columns,
    evaluation_text,
    format_duration,
)
from grpo_exp.tracking.metrics_log import MetricsRecord, parse_line

POLL_SECONDS = 0.2
#: A log file gets about this many lines, and one at least each minute.
NUM_PLAIN_LINES = 20
MAX_SECONDS_BETWEEN_LINES = 60.0
#: The remaining time is judged by this many steps.
NUM_RECENT_STEPS = 20
BAR_WIDTH = 60


@dataclass(frozen=True, slots=True)
class _Phase:
    """What a run is doing when it is not training; `total` is 0 where parts are not counted."""

    name: str
    done: int
    total: int

    @property
    def text(self) -> str:
        return f"{self.name} {self.done}/{self.total}" if self.total else self.name

    @property
    def quarter(self) -> int:
        return 4 * self.done // self.total if self.total else 0


class ProgressView:
    """Show records of `metrics.jsonl`; may be used from several threads.

    On a terminal: a table with the first and the latest step and a bar, updated in place. Elsewhere: a header
    and one aligned line every few steps.

    Args:
        total_steps: Optimizer steps of the whole run.
        component_names: Reward components, in the order in which to show them.
        console: Where to write.
        every_steps: Steps between two plain lines; None makes about NUM_PLAIN_LINES of them.
    """

    def __init__(
        self,
        total_steps: int,
        component_names: Sequence[str],
        console: Console,
        *,
        every_steps: int | None = None,
    ) -> None:
        self._total_steps = total_steps
        self._console = console
        self._every_steps = every_steps if every_steps is not None else max(1, total_steps // NUM_PLAIN_LINES)
        self._all_columns = build_columns(component_names)
        self._seen: set[str] = set()
        self._first: MetricsRecord | None = None
        self._latest: MetricsRecord | None = None
        self._printed: MetricsRecord | None = None
        self._header: list[str] = []
        self._recent: deque[tuple[int, float]] = deque(maxlen=NUM_RECENT_STEPS + 1)
        self._lock = threading.RLock()
        self._phase: _Phase | None = None
        self._live: Live | None = None

    def update(self, record: MetricsRecord) -> None:
        """Show one record: a training step, a held-out evaluation, or both."""
        with self._lock:
            metrics = record["metrics"]
            if any(name.startswith("train/") for name in metrics):
                self._take(record)
                if self._console.is_terminal:
                    self._phase = None
                    self._refresh()
                elif self._is_line_due(record):
                    self._print_line(record)
            if "eval/accuracy" in metrics:
                self.message(evaluation_text(record))

    def message(self, text: str) -> None:
        """Write a line of text, above the table if there is one."""
        with self._lock:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Say what the run is doing when it is not training, such as preparing the model.

        On a terminal below the table, with a bar where parts are counted, until the next training step; elsewhere one
        line for each new name and each further quarter.

        Args:
            name: What is going on.
            done: Parts that are done.
            total: All parts; 0 if they are not counted.
        """
        with self._lock:
            before, self._phase = self._phase, _Phase(name, done, total)
            if self._console.is_terminal:
                self._refresh()
            elif before is None or name != before.name or self._phase.quarter > before.quarter:
                self.message(self._phase.text)

    def close(self) -> None:
        """Leave the last state on the screen; calling it twice does no harm."""
        with self._lock:
            if self._live is not None:
                self._phase = None  # nothing is going on any more
                self._refresh()
                self._live.stop()
                self._live = None
            elif not (self._console.is_terminal or self._latest is self._printed):
                assert self._latest is not None
                self._print_line(self._latest)

    def _take(self, record: MetricsRecord) -> None:
        if self._recent and record["step"] <= self._recent[-1][0]:
            self._recent.clear()  # resumed from an older checkpoint
        self._recent.append((record["step"], record["time"]))
        self._seen |= record["metrics"].keys()
        self._first = self._first if self._first is not None else record
        self._latest = record

    def _columns_now(self) -> list[Column]:
        return [column for column in self._all_columns if self._seen.intersection(column.metrics)]

    def _cells(self, record: MetricsRecord) -> list[str]:
        cells = [f"{record['step']}/{self._total_steps}"]
        cells += [column.text(record["metrics"]) for column in self._columns_now()]
        return [*cells, self._eta()]

    def _titles(self) -> list[str]:
        return ["step", *(column.title for column in self._columns_now()), "ETA"]

    def _widths(self) -> list[int]:
        step_width = max(2 * len(str(self._total_steps)) + 1, 4)
        return [step_width, *(column.width for column in self._columns_now()), 8]

    def _eta(self) -> str:
        """Return the time left, from the median of the latest steps: one evaluation does not move it."""
        assert self._latest is not None
        seconds = [
            (time - earlier_time) / (step - earlier_step)
            for (earlier_step, earlier_time), (step, time) in pairwise(self._recent)
        ]
        if not seconds:
            seconds = [value for name, value in self._latest["metrics"].items() if name == "time/step"]
        if not seconds:
            return ABSENT
        remaining = max(0, self._total_steps - self._latest["step"])
        return format_duration(remaining * statistics.median(seconds))

    def _refresh(self) -> None:
        view = self._build_view()
        if self._live is None:
            # Refreshed with each record only: no thread that draws while a worker writes to the terminal.
            self._live = Live(
                view, console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(view, refresh=True)

    def _build_view(self) -> Group:
        parts: list[RenderableType] = []
        if self._first is not None and self._latest is not None:
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for title in self._titles()[:-1]:  # the time left stands beside the bar
                table.add_column(title, justify="right", no_wrap=True)
            if self._first is not self._latest:
                table.add_row(*self._cells(self._first)[:-1], style="dim")
            table.add_row(*self._cells(self._latest)[:-1])
            bar = Table.grid(padding=(0, 2, 0, 0))
            bar.add_row(self._bar(self._total_steps, self._latest["step"]), f"ETA {self._eta()}")
            parts = [table, bar]
        if self._phase is not None:
            parts.append(Text(self._phase.text, no_wrap=True, overflow="ellipsis"))
            if self._phase.total:
                parts.append(self._bar(self._phase.total, self._phase.done))
        return Group(*parts)

    def _bar(self, total: int, done: int) -> ProgressBar:
        return ProgressBar(total, done, width=max(10, min(BAR_WIDTH, self._console.width - 20)))

    def _is_line_due(self, record: MetricsRecord) -> bool:
        if self._printed is None or record["step"] >= self._total_steps:
            return True
        steps = record["step"] - self._printed["step"]
        return not 0 <= steps < self._every_steps or (
            record["time"] - self._printed["time"] >= MAX_SECONDS_BETWEEN_LINES
        )

    def _print_line(self, record: MetricsRecord) -> None:
        widths, titles = self._widths(), self._titles()
        if titles != self._header:
            self._header = titles
            self.message(aligned(titles, widths))
        self.message(aligned(self._cells(record), widths))
        self._printed = record


def follow(path: Path, view: ProgressView, should_stop: Callable[[], bool], *, start_offset: int = 0) -> None:
    """Feed a view with the lines of a `metrics.jsonl` that another process writes.

    Returns after `should_stop` is true and what was written until then has been shown. The file need not
    exist yet; a line is taken when it is whole.

    Args:
        path: The file.
        view: Gets every record.
        should_stop: Asked every POLL_SECONDS.
        start_offset: Bytes to skip: the size of the file before a resumed run starts.
    """
    offset = start_offset
    while True:
        # Asked before reading: what was written before the end is then surely read.
        is_last_round = should_stop()
        offset = feed(path, view, offset)
        if is_last_round:
            return
        time.sleep(POLL_SECONDS)


def feed(path: Path, view: ProgressView, offset: int) -> int:
    """Feed a view with the whole lines behind an offset, and return the offset behind them.

    For callers with a loop of their own; `follow` is this loop.
    """
    lines, offset = new_lines(path, offset)
    for line in lines:
        record = parse_line(line)
        if record is not None:
            view.update(record)
    return offset


def new_lines(path: Path, offset: int) -> tuple[list[bytes], int]:
    """Return the whole lines of a growing file behind an offset, and the offset behind them; it need not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < offset:
                return [], size  # cut back to a checkpoint: what is left has been shown
            file.seek(offset)
            block = file.read(size - offset)
    except FileNotFoundError:
        return [], offset
    whole = block[: block.rfind(b"\n") + 1]
    return whole.splitlines(), offset + len(whole)
