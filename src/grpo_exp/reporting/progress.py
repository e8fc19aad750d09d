"""What a person sees while a run trains: a table that is updated in place, or plain lines in a log file."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
from grpo_exp.tracking.metrics_log import MetricsRecord

#: In a log the titles come again after so many steps: about once on a screen.
STEPS_BETWEEN_TITLES = 50
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
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

    Live: a table with the first and the latest step and a bar, updated in place. Plain, for logs: titles and one
    aligned line for each step, each line behind its local time.

    Args:
        total_steps: Optimizer steps of the whole run.
        component_names: Reward components, in the order in which to show them.
        console: Where to write.
        live: Which of the two; None is live on a terminal.
    """

    def __init__(
        self,
        total_steps: int,
        component_names: Sequence[str],
        console: Console,
        *,
        live: bool | None = None,
    ) -> None:
        self._total_steps = total_steps
        self._console = console
        self._is_live = console.is_terminal if live is None else live
        self._all_columns = build_columns(component_names)
        self._seen: set[str] = set()
        self._first: MetricsRecord | None = None
        self._latest: MetricsRecord | None = None
        self._titles_shown: list[str] = []
        self._lines_below_titles = 0
        self._recent: deque[tuple[int, float]] = deque(maxlen=NUM_RECENT_STEPS + 1)
        self._lock = threading.RLock()
        self._phase: _Phase | None = None
        self._live: Live | None = None

    def update(self, *records: MetricsRecord) -> None:
        """Show records: each a training step, a held-out evaluation, or both. The table is drawn once for all."""
        with self._lock:
            is_changed = False
            for record in records:
                metrics = record["metrics"]
                if any(name.startswith("train/") for name in metrics):
                    self._take(record)
                    if self._is_live:
                        self._phase, is_changed = None, True
                    else:
                        self._print_line(record)
                if "eval/accuracy" in metrics:
                    self.message(evaluation_text(record), record["time"])
            if is_changed:
                self._refresh()

    def expect(self, total_steps: int) -> None:
        """Take another number of steps for the whole run: it goes on longer than was asked for at first."""
        with self._lock:
            self._total_steps = total_steps

    def message(self, text: str, at: float | None = None) -> None:
        """Write a line of text, above the table if there is one.

        Args:
            text: One line.
            at: Unix time of what it tells; None is now. Shown in a log only.
        """
        with self._lock:
            stamp = "" if self._is_live else f"{format_time(time.time() if at is None else at)}  "
            self._console.print(f"{stamp}{text}", markup=False, highlight=False, soft_wrap=True)

    def phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Say what the run is doing when it is not training, such as preparing the model.

        Live below the table, with a bar where parts are counted, until the next training step; in a log one line for
        each new name and each further quarter.

        Args:
            name: What is going on.
            done: Parts that are done.
            total: All parts; 0 if they are not counted.
        """
        with self._lock:
            before, self._phase = self._phase, _Phase(name, done, total)
            if self._is_live:
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

    def _print_line(self, record: MetricsRecord) -> None:
        widths, titles = self._widths(), self._titles()
        if titles != self._titles_shown or self._lines_below_titles == STEPS_BETWEEN_TITLES:
            self._titles_shown, self._lines_below_titles = titles, 0
            stamp = "time".ljust(len(format_time(record["time"])))
            self._console.print(f"{stamp}  {aligned(titles, widths)}", markup=False, highlight=False, soft_wrap=True)
        self._lines_below_titles += 1
        self.message(aligned(self._cells(record), widths), record["time"])


def format_time(seconds: float) -> str:
    """Write a Unix time as local date and time."""
    return time.strftime(TIME_FORMAT, time.localtime(seconds))
