"""What is done to a sweep that exists: take it up again, and take it back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from grpo_exp.errors import ExitCode
from grpo_exp.sweeps.files import holding
from grpo_exp.sweeps.launchers import launcher_of, load_launcher, read_view
from grpo_exp.sweeps.manifest import SweepDirectory, set_cancelled
from grpo_exp.sweeps.states import UNFINISHED, PointStatus, State, exit_code_of, read_statuses

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancellation did."""

    num_marked: int
    """Runs that are not started until the sweep is resumed; those that were running count, too."""
    num_running: int
    """Runs that had not stopped when it gave up waiting."""


def start(
    sweep: SweepDirectory,
    states: AbstractSet[State],
    console: Console,
    *,
    changed: Mapping[str, Any] | None = None,
    among: AbstractSet[int] | None = None,
) -> int:
    """Start the runs in these states with the launcher of the sweep, and return the exit code of the sweep.

    Args:
        sweep: The sweep.
        states: Of the runs to start.
        console: Where to tell of it.
        changed: Settings of the launcher that are to differ from the last start.
        among: Indices of the runs that are meant; None is all.

    Raises:
        ConfigError: A setting of the launcher is wrong.
    """
    kind, values = launcher_of(sweep)
    launcher = load_launcher(kind)
    values = {**values, **(changed or {})}
    launcher.check(values)
    # Who hands runs to a scheduler must see what another one has just handed over; who runs them here sees it in time.
    with contextlib.nullcontext() if launcher.RUNS_HERE else holding(sweep.submission):
        every = read_statuses(sweep, launcher.view(sweep))
        meant = [status for status in every if among is None or status.entry.index in among]
        chosen = [status for status in meant if status.state in states]
        if not chosen:
            console.print("nothing to start", highlight=False)
            return exit_code_of(meant)
        set_cancelled(sweep, remove=[status.entry.run_directory for status in chosen])
        code = launcher.start(sweep, chosen, values, console)
    if code != ExitCode.COMPLETED or not launcher.RUNS_HERE:
        return code
    # What failed before and was not chosen counts, too: the sweep is not done.
    return exit_code_of([status for status in meant if status.state not in states])


def cancel(sweep: SweepDirectory, *, wait_seconds: float) -> Cancelled:
    """Mark all runs that are not done as cancelled, take back what is queued, and stop what runs.

    Args:
        sweep: The sweep.
        wait_seconds: How long to wait for the running ones to finish their step.
    """
    kind, _ = launcher_of(sweep)
    launcher = load_launcher(kind)
    unfinished = [status for status in read_statuses(sweep, launcher.view(sweep)) if status.state in UNFINISHED]
    # Marked before anything is stopped, so that what becomes free is not filled again.
    set_cancelled(sweep, add=[status.entry.run_directory for status in unfinished])
    launcher.cancel(sweep, [status.entry for status in unfinished])
    deadline = time.monotonic() + wait_seconds
    while True:
        running = _running(sweep, unfinished)
        for status in running:
            # Again and again: a run that is just beginning clears the request of an earlier attempt.
            sweep.run(status.entry).stop_file.touch()
        if not running or time.monotonic() >= deadline:
            return Cancelled(len(unfinished), len(running))
        time.sleep(_POLL_SECONDS)


def _running(sweep: SweepDirectory, among: list[PointStatus]) -> list[PointStatus]:
    """Return those whose run has a live owner: a scheduler may not know yet that they ended."""
    wanted = {status.entry.index for status in among}
    return [s for s in read_statuses(sweep) if s.state == "running" and s.entry.index in wanted]


def statuses_of(sweep: SweepDirectory) -> list[PointStatus]:
    """Return how all runs stand, reconciled with the sweep's scheduler."""
    return read_statuses(sweep, read_view(sweep))
