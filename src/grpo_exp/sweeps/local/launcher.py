"""`hydra/launcher=local`: a subprocess per run on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from grpo_exp.devices import uses_cpu
from grpo_exp.sweeps.local.pool import Pool, heed_signals
from grpo_exp.sweeps.local.settings import LocalLauncherSettings, build_slots, check_local
from grpo_exp.sweeps.local.view import build_view
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.states import PointStatus, SchedulerView

RUNS_HERE = True
FOR_ONE_CALL: frozenset[str] = frozenset()


def check(values: Mapping[str, Any]) -> LocalLauncherSettings:
    """Return typed settings of `hydra.launcher`.

    Raises:
        ConfigError: A setting is wrong.
    """
    return check_local(values)


def start(sweep: SweepDirectory, chosen: Sequence[PointStatus], values: Mapping[str, Any], console: Console) -> int:
    """Run the chosen points to their end and return the exit code: 1, 85, 3 or 0, whichever is first to apply.

    Raises:
        ConfigError: This machine has not what the settings ask for.
    """
    settings = sweep.read_all_settings()
    launches = [settings[status.entry.index]["launch"] for status in chosen]
    slots = build_slots(
        check_local(values),
        num_processes=max(launch["num_processes"] for launch in launches),
        uses_cpu=all(uses_cpu(launch["device"]) for launch in launches),
    )
    pool = Pool(sweep, chosen, slots, build_view(sweep, len(chosen), console))
    with heed_signals(pool):
        return pool.run()


def view(sweep: SweepDirectory) -> SchedulerView:
    """Return nothing: the folders of the runs say all."""
    return {}


def cancel(sweep: SweepDirectory, entries: Sequence[Entry]) -> None:
    """Do nothing: a pool looks at the marks before it starts a run."""
