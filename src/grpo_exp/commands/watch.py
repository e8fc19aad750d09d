"""Follow a run that goes on elsewhere: `grpo-exp watch RUN_FOLDER`.

Shows what there is so far, then what comes, and ends with the run's summary and exit code. Reads files only, so the
run may be on another machine with the same file system. RUN_FOLDER may be a folder above the only run in it.
Ctrl-C ends the watching (exit code 130) and leaves the run alone. A run that gives no sign of life is watched on: it
may be started again. GRPO_EXP_PROGRESS=plain prints a line for each step, =live a table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from grpo_exp.conclusion import conclude
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError
from grpo_exp.reporting.columns import format_duration
from grpo_exp.reporting.live import LiveRun
from grpo_exp.reporting.progress import format_time
from grpo_exp.run_lock import Owner, read_owner
from grpo_exp.run_search import find_run
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings

_POLL_SECONDS = 0.5
#: What a shell reports of a command that Ctrl-C ended.
_INTERRUPTED = 130


def main(words: Sequence[str]) -> int:
    """Follow a run to its end and return its exit code."""
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError("Usage: grpo-exp watch RUN_FOLDER")
    directory, console = find_run(Path(words[0])), build_console()
    console.print(f"watching {directory.path}", soft_wrap=True, highlight=False, markup=False)
    try:
        return watch(directory, console)
    except KeyboardInterrupt:
        console.print("no longer watching; the run was left alone", highlight=False)
        return _INTERRUPTED


def watch(directory: RunDirectory, console: Console) -> int:
    """Follow attempts until one has ended with a result, and return its exit code."""
    settings, attempt, was_alive = load.validate(directory.read_config()), directory.attempt, True
    written = _written(directory)
    with _view(directory, settings, attempt, console) as view:
        while True:
            # Asked before the files are read: what was written before the end is then surely shown.
            owner = read_owner(directory.lock)
            is_done = directory.read_result() is not None
            if directory.attempt != attempt:
                attempt = directory.attempt
                view.message(f"attempt {attempt} has begun")
                continue
            if _written(directory) not in {0, written}:  # another attempt may have been asked for more steps
                written, settings = _written(directory), load.validate(directory.read_config())
                view.expect(settings.trainer.max_steps)
            view.refresh()
            if is_done:
                break
            is_alive = owner.state == "alive"
            if is_alive != was_alive:
                view.message(_sign_of_life(directory, owner))
            was_alive = is_alive
            time.sleep(_POLL_SECONDS)
    return conclude(directory, settings, console)


def _written(directory: RunDirectory) -> int:
    """Return when the settings were written, in nanoseconds; 0 where the run's folder is gone."""
    try:
        return directory.config_json.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _view(directory: RunDirectory, settings: RunSettings, attempt: int, console: Console) -> LiveRun:
    return LiveRun(
        directory.metrics,
        directory.status,
        console,
        total_steps=settings.trainer.max_steps,
        component_names=list(settings.reward.components),
        events=directory.events,
        so_far=attempt,
    )


def _sign_of_life(directory: RunDirectory, owner: Owner) -> str:
    """Say that the run is alive again, or since when it is not."""
    if owner.state == "alive":
        return "the run gives signs of life again"
    if owner.age_seconds is None:
        last = directory.metrics if directory.metrics.exists() else directory.config_json
        since = f"nobody owns the run, whose last sign was at {format_time(last.stat().st_mtime)}"
    else:
        who = "its process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
        when = format_time(time.time() - owner.age_seconds)
        since = f"no sign of life of {who} since {when} ({format_duration(owner.age_seconds)} ago)"
    return f"{since}, and there is no result; it may be lost: the same command starts it again; watching on"
