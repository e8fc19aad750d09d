"""`hydra/launcher=slurm`: one array job, submitted and left to itself."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.run_lock import read_owner
from grpo_exp.rundir import write_text
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import served_model
from grpo_exp.sweeps.manifest import Entry, SweepDirectory, settings_of
from grpo_exp.sweeps.rules import check_settings
from grpo_exp.sweeps.slurm import scheduler
from grpo_exp.sweeps.slurm.directives import check_folder, split
from grpo_exp.sweeps.slurm.jobs import add_job, slurm_folder
from grpo_exp.sweeps.slurm.rendering import render_script, template_of
from grpo_exp.sweeps.slurm.settings import SlurmSettings
from grpo_exp.sweeps.states import PointStatus, SchedulerView

RUNS_HERE = False
FOR_ONE_CALL = frozenset({"dry_run"})  # otherwise `resume` would never submit anything
#: Variables through which a job would inherit the place of the one that submits it, or options that the script sets.
_OF_A_JOB = ("SLURM_", "SBATCH_", "SRUN_")
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_RESERVATION", "SBATCH_CLUSTERS")


def check(values: Mapping[str, Any]) -> SlurmSettings:
    """Return typed settings of `hydra.launcher`.

    Raises:
        ConfigError: A setting is wrong.
    """
    return check_settings(SlurmSettings, values, prefix=("hydra", "launcher"))


def start(sweep: SweepDirectory, chosen: Sequence[PointStatus], values: Mapping[str, Any], console: Console) -> int:
    """Write the scripts, submit them, say how to look at them, and return 0.

    Raises:
        ConfigError: A point does not fit to the nodes that are asked for.
        RunError: sbatch refused.
    """
    settings = check(values)
    check_folder(sweep.path)
    _check_points(sweep, [status.entry for status in chosen], settings)
    size = settings.max_array_size or scheduler.read_max_array_size()
    folder = slurm_folder(sweep.path)
    for name in ("logs", "codes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for chunk in split([status.entry.index for status in chosen], size):
        script = _new_script(folder, template_of(settings))
        write_text(script, render_script(settings, sweep.path, chunk))
        if settings.dry_run:
            _say(console, f"written    {script} (array {chunk.array}); nothing was submitted")
            continue
        job_id = scheduler.submit(script, _submission_environment(os.environ))
        add_job(sweep.path, job_id, chunk, script)
        _say(console, f"submitted  job {job_id}, array {chunk.array}, from {script}")
    if settings.dry_run:
        return ExitCode.COMPLETED
    quoted = shlex.quote(str(sweep.path))
    _say(console, f"look       grpo-exp sweep status {quoted}; squeue --me; logs in {folder / 'logs'}")
    _say(console, f"take back  grpo-exp sweep cancel {quoted}")
    return ExitCode.COMPLETED


def view(sweep: SweepDirectory) -> SchedulerView:
    """Return what SLURM says about the points; nothing where it is not installed."""
    return scheduler.read_states(sweep.path)


def cancel(sweep: SweepDirectory, entries: Sequence[Entry]) -> None:
    """Cancel the tasks whose run has not begun. Those that run get a STOP file, save, and are not requeued."""
    waiting = [entry.index for entry in entries if read_owner(sweep.run(entry).lock).state != "alive"]
    scheduler.cancel_points(sweep.path, waiting)


def _check_points(sweep: SweepDirectory, entries: Sequence[Entry], settings: SlurmSettings) -> None:
    for entry in entries:
        planned = sweep.read_settings(entry)
        if settings.nodes > 1 and planned["launch"]["num_processes"] != settings.count_processes():
            raise ConfigError(
                f"launch.num_processes={planned['launch']['num_processes']}: hydra.launcher starts {settings.nodes} "
                f"nodes with {settings.count_processes()} processes together; use launch.num_processes="
                f"{settings.count_processes()}, or change hydra.launcher.nodes, gpus_per_node or processes_per_node"
            )
        if settings.server_nodes:
            _check_served(settings_of(planned), settings.server_nodes)


def _check_served(planned: RunSettings, server_nodes: int) -> None:
    """Refuse a run that cannot use the server of its own nodes.

    Raises:
        ConfigError: It generates without one, has another one, or its model has no files to serve.
    """
    vllm = planned.vllm
    if vllm.mode != "server":
        raise ConfigError(
            f"vllm.mode={vllm.mode}: hydra.launcher.server_nodes={server_nodes} start a server that this run would not "
            "use; add vllm=server, or use hydra.launcher.server_nodes=0"
        )
    if vllm.num_gpus is not None or vllm.server_base_url is not None:
        name = "server_base_url" if vllm.num_gpus is None else "num_gpus"
        raise ConfigError(
            f"vllm.{name}={getattr(vllm, name)}: names another server than that of hydra.launcher.server_nodes="
            f"{server_nodes}; use one of them"
        )
    served_model(planned)


def _new_script(folder: Path, template: str) -> Path:
    """Return a file for the next script; earlier ones stay, since SLURM's job numbers refer to them."""
    number = 1
    while True:
        path = folder / f"{template}-{number:03}.sbatch"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1


def _submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out what a job that submits has from its own allocation."""
    return {name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_OF_A_JOB)}


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
