"""What `--multirun` does: read the axes, check all points, write and print the plan, start what is not done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.sweeps.axes import build_grid
from grpo_exp.sweeps.launchers import load_launcher
from grpo_exp.sweeps.manifest import SweepDirectory, extend, merge
from grpo_exp.sweeps.operations import start
from grpo_exp.sweeps.placement import check_folder
from grpo_exp.sweeps.plan_text import describe_faults_by_cause, describe_plan
from grpo_exp.sweeps.planning import build_plan
from grpo_exp.sweeps.request import MultirunRequest
from grpo_exp.sweeps.rules import SweepRules, check_settings
from grpo_exp.sweeps.states import TO_RESUME, read_some

#: Between two lines about the planning, without a terminal.
_LINE_SECONDS = 5.0


def run_multirun(request: MultirunRequest, console: Console) -> int:
    """Plan and run a sweep and return its exit code.

    Args:
        request: What was asked for.
        console: Where the plan and the progress go.

    Raises:
        ConfigError: Points are wrong; then nothing was written or started.
    """
    kind, launcher_values = request.launcher
    launcher = load_launcher(kind)
    launcher.check(launcher_values)
    folder = (Path.cwd() / Path(request.folder).expanduser()).resolve()
    check_folder(folder)
    why = why_not_writable(folder)
    if why is not None:
        raise ConfigError(f"hydra.sweep.dir={folder}: {why}; choose another folder with output_dir=FOLDER")
    params = request.sweeper.get("params") or {}
    rules = check_settings(
        SweepRules,
        {key: value for key, value in request.sweeper.items() if key != "params"},
        prefix=("hydra", "sweeper"),
    )
    grid = build_grid(params, request.words, loader=request.loader, paired=rules.paired)
    with _progress(grid.size, console) as on_point:
        plan = build_plan(
            grid, rules, folder=folder, hydra_words=request.hydra_words, runs_here=launcher.RUNS_HERE, on_point=on_point
        )
    if plan.faults or not plan.points:
        raise ConfigError(describe_faults_by_cause(plan, grid.size))
    sweep = SweepDirectory(folder)
    once = {key: value for key, value in launcher_values.items() if key in launcher.FOR_ONE_CALL}
    kept = {key: value for key, value in launcher_values.items() if key not in once}
    call = {"launcher": {"kind": kind, "settings": kept}, "words": [*request.words]}
    entries = merge(sweep, plan.points).asked_for if rules.dry_run else extend(sweep, plan.points, call=call)
    statuses = read_some(sweep, entries, launcher.view(sweep))
    num_others = len(merge(sweep, plan.points).entries) - len(entries)
    for line in describe_plan(sweep, plan, rules, statuses=statuses, num_others=num_others):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if rules.dry_run:
        console.print("hydra.sweeper.dry_run: nothing was written or started", highlight=False)
        return ExitCode.COMPLETED
    return start(sweep, TO_RESUME, console, changed=once, among={entry.index for entry in entries})


@contextmanager
def _progress(total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """Show how the planning gets on: a bar in a terminal, a line now and then elsewhere."""
    if console.is_terminal:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task("checking the points", total=total)
            yield lambda count: bar.update(task, completed=count)
        return
    told = time.monotonic()

    def tell(count: int) -> None:
        nonlocal told
        if time.monotonic() - told > _LINE_SECONDS:
            told = time.monotonic()
            console.print(f"checking   {count} of {total} points", highlight=False)

    yield tell
