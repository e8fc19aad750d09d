"""How the runs of a pool get on: a table that stays up to date in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from grpo_exp.reporting.columns import ABSENT, format_duration
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.planning import describe_values
from grpo_exp.sweeps.states import PointStatus, count_states, read_last_step

#: Between two lines about runs that are going on, without a terminal.
_LINE_SECONDS = 60.0
#: The table is drawn anew as often.
_TABLE_SECONDS = 1.0


class PoolView:
    """Tells what starts, ends and goes on, in lines.

    Args:
        sweep: The sweep.
        total: Points that were chosen.
        console: Where to tell of it.
    """

    def __init__(self, sweep: SweepDirectory, total: int, console: Console) -> None:
        self._sweep = sweep
        self._total = total
        self._console = console
        self._done = 0
        self._failed = 0
        self._started: dict[int, float] = {}
        self._max_steps: dict[int, int] = {}
        self._next = time.monotonic() + self._interval()

    def __enter__(self) -> PoolView:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def started(self, entry: Entry) -> None:
        """Tell that a run was started."""
        self._started[entry.index] = time.monotonic()
        self._max_steps[entry.index] = self._sweep.read_settings(entry)["trainer"]["max_steps"]
        self._say(f"started    {_title(entry)}")

    def ended(self, status: PointStatus, code: int) -> None:
        """Tell how a run ended."""
        self._done += 1
        self._failed += status.state == "failed"
        seconds = format_duration(time.monotonic() - self._started[status.entry.index])
        steps = "" if status.steps is None else f", {status.steps} steps"
        reason = "" if status.reason is None or status.state == "completed" else f": {status.reason}"
        if status.state == "completed" and status.result is not None:
            reason = accuracy_text(status.result)
        if status.state == "missing":
            reason = f": it ended with code {code} before it began; log: {self._sweep.log(status.entry)}"
        self._say(f"{status.state:<10} {_title(status.entry)} after {seconds}{steps}{reason} {self._tally()}")

    def passed_over(self, status: PointStatus) -> None:
        """Tell that a run was not started, since it stands otherwise than when it was chosen."""
        self._done += 1
        self._say(f"{status.state:<10} {_title(status.entry)}: by another process {self._tally()}")

    def stopping(self, count: int, running: int) -> None:
        """Tell that a request to end was understood."""
        if count == 1:
            self._say(
                f"stopping: {running} running stop after their step, nothing more is started; once more to end at once"
            )
        elif count == 2:
            self._say("ending the running ones at once")

    def refresh(self, running: Sequence[tuple[Entry, int]], waiting: int) -> None:
        """Tell how the running ones get on, from time to time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval()
        for entry, _ in running:
            self._say(f"running    {_title(entry)}: {', '.join(self._progress(entry))}")

    def summary(self, statuses: Sequence[PointStatus]) -> None:
        """Tell how all of them stand, and what to do next."""
        counts = count_states(statuses)
        self._say(f"{len(statuses)} runs: {', '.join(f'{number} {name}' for name, number in counts.items())}")
        for status in statuses:
            if status.state == "failed":
                self._say(f"  failed {_title(status.entry)}: {status.reason}")
        if counts.keys() & {"missing", "stopped", "lost", "cancelled"}:
            self._say(f"to go on: the same command again, or grpo-exp sweep resume {self._sweep.path}")
        if "failed" in counts:
            self._say(f"to run the failed ones again: grpo-exp sweep retry {self._sweep.path}")
        self._say(f"table: grpo-exp report {self._sweep.path}")

    def _interval(self) -> float:
        return _LINE_SECONDS

    def _tally(self) -> str:
        return f"[{self._done}/{self._total}]"

    def _progress(self, entry: Entry) -> tuple[str, str, str]:
        """Return step, reward and time of a running one as texts."""
        record = read_last_step(self._sweep.run(entry).metrics)
        step = 0 if record is None else record["step"]
        reward = ABSENT if record is None else f"{record['metrics']['train/reward']:.3f}"
        seconds = format_duration(time.monotonic() - self._started[entry.index])
        return f"step {step}/{self._max_steps[entry.index]}", f"reward {reward}", seconds

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)


class TableView(PoolView):
    """Shows what runs in a table below the lines about starts and ends."""

    def __init__(self, sweep: SweepDirectory, total: int, console: Console) -> None:
        super().__init__(sweep, total, console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> TableView:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def refresh(self, running: Sequence[tuple[Entry, int]], waiting: int) -> None:
        """Draw the table anew, from time to time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval()
        table = Table(box=None, pad_edge=False)
        title = f"{len(running)} running, {waiting} waiting, {self._done} of {self._total} ended, {self._failed} failed"
        for heading in (title, "step", "reward", "time"):
            table.add_column(heading)
        for entry, _ in running:
            table.add_row(_title(entry), *self._progress(entry))
        self._live.update(table, refresh=True)

    def _interval(self) -> float:
        return _TABLE_SECONDS


def build_view(sweep: SweepDirectory, total: int, console: Console) -> PoolView:
    """Return a table for a terminal, lines for anything else."""
    return (TableView if console.is_terminal else PoolView)(sweep, total, console)


def accuracy_text(result: Mapping[str, Any]) -> str:
    """Write the held-out accuracy before and after, as far as it was measured."""
    found = [result.get("eval", {}).get(when, {}).get("accuracy") for when in ("before", "after")]
    known = [f"{value:.3f}" for value in found if value is not None]
    return f", accuracy {' -> '.join(known)}" if known else ""


def _title(entry: Entry) -> str:
    return f"{entry.index} {describe_values(entry.values)}"
