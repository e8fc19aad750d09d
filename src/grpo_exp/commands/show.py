"""Show how a run stands or ended: `grpo-exp show RUN_FOLDER`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_exp.checkpoints.continuation import store_of
from grpo_exp.conclusion import conclude, steps_done
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.reporting.columns import format_duration
from grpo_exp.run_lock import Owner, read_owner
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load


def main(words: Sequence[str]) -> int:
    """Print the result of a run that ended, or how far one came that is running or was lost."""
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError("Usage: grpo-exp show RUN_FOLDER")
    directory, console = RunDirectory(Path(words[0]).resolve()), build_console()
    settings = load.validate(directory.read_config())
    # Asked before the result: a run that ends between the two questions has one.
    owner = read_owner(directory.lock)
    if directory.read_result() is not None:
        conclude(directory, settings, console)
    else:
        text = f"{directory.path}: {describe_unfinished(directory, owner, max_steps=settings.trainer.max_steps)}"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    return ExitCode.COMPLETED


def describe_unfinished(directory: RunDirectory, owner: Owner, *, max_steps: int) -> str:
    """Say of a run without a result whether it is running or was lost, and how far it came.

    Args:
        directory: The run.
        owner: Who holds its lock.
        max_steps: Steps that it was to make.
    """
    status = directory.read_status()
    phase = "" if status is None else f", {status['phase']}"
    if status is not None and status["total"] and status["phase"] != "training":
        phase += f" {status['done']}/{status['total']}"
    where = f"step {steps_done(directory)} of {max_steps}{phase}"
    if owner.state == "alive":
        who = "" if owner.pid is None else f" in process {owner.pid} on {owner.host}"
        return f"running{who}: {where}"
    ended = "its process has ended without a result"
    if owner.pid is not None:
        ended = f"process {owner.pid} on {owner.host} has ended without a result"
    if owner.age_seconds is not None:
        ended += f", last heard of {format_duration(owner.age_seconds)} ago"
    step = store_of(directory).newest_step()
    again = "run it from the beginning" if step is None else f"go on from checkpoint-{step}"
    return f"lost: {where}; {ended}; start it again to {again}"
