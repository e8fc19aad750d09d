"""What starts the runs of a sweep: the interface, and which ones there are.

A launcher starts `grpo-exp sweep run-point SWEEP_DIR INDEX` for each run, here or elsewhere. That command takes care
that no run has two owners, so a launcher may start one too many and never harms. Its exit codes: 0, 1, 2, 3 and 85 as
`train`; 4 for nothing done, because another process has the run or it was cancelled.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from rich.console import Console

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.states import PointStatus, SchedulerView

#: Kind -> module. The kind is the option of the group `hydra/launcher`.
_MODULES = {
    "local": "grpo_exp.sweeps.local.launcher",
    "slurm": "grpo_exp.sweeps.slurm.launcher",
}


class SweepLauncher(Protocol):
    """What a module of `_MODULES` offers, as functions."""

    RUNS_HERE: bool
    """Its runs are on this machine, so that its devices are checked before the start."""
    FOR_ONE_CALL: frozenset[str]
    """Settings that are not remembered for `resume` and `retry`."""

    def check(self, values: Mapping[str, Any]) -> Any:
        """Return typed settings of `hydra.launcher`.

        Raises:
            ConfigError: A setting is wrong.
        """
        ...

    def start(
        self, sweep: SweepDirectory, chosen: Sequence[PointStatus], values: Mapping[str, Any], console: Console
    ) -> int:
        """Run or submit these points and return the exit code of the command: 0 where all is done or submitted.

        Args:
            sweep: Written already.
            chosen: Points to start, as they stood when they were chosen.
            values: Plain settings of `hydra.launcher`.
            console: Where to tell of it.
        """
        ...

    def view(self, sweep: SweepDirectory) -> SchedulerView:
        """Return what the scheduler says about the points; empty where there is none, or it cannot be asked."""
        ...

    def cancel(self, sweep: SweepDirectory, entries: Sequence[Entry]) -> None:
        """Take back what was submitted and has not begun; running points get their STOP file from the caller."""
        ...


def load_launcher(kind: str) -> SweepLauncher:
    """Return the launcher of a kind.

    Raises:
        ConfigError: There is none.
    """
    if kind not in _MODULES:
        raise ConfigError(
            f"hydra/launcher={kind}: does not start runs in processes of their own; choose hydra/launcher="
            f"{' or '.join(_MODULES)}"
        )
    return cast(SweepLauncher, importlib.import_module(_MODULES[kind]))


def launcher_of(sweep: SweepDirectory) -> tuple[str, dict[str, Any]]:
    """Return kind and settings of the launcher that the sweep was last started with."""
    launcher = sweep.read_about()["launcher"] or {"kind": "local", "settings": {}}
    return launcher["kind"], launcher["settings"]


def read_view(sweep: SweepDirectory) -> SchedulerView:
    """Return what the sweep's scheduler says about its points."""
    return load_launcher(launcher_of(sweep)[0]).view(sweep)
