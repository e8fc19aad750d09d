"""Write the report of a run or a sweep: `grpo-exp report RUN|SWEEP [--metric=NAME] [--output=FOLDER]`.

RUN is the folder of a run, or one that holds a single run. SWEEP is the folder that the multirun printed, or its name
below outputs/sweeps. What is not done yet is reported as far as it is; a sweep also gets its summary.csv anew.

  --metric=NAME    what the points of a sweep are judged by, more is better: accuracy (held out, after training; the
                   default), greedy_accuracy, or the name of a curve, of which the last tenth counts
  --output=FOLDER  where the report goes (default: report/ in the folder of the run or sweep)
Written are index.html, which needs no network and no other file, report.md, figures/ (PNG and SVG) and tables (CSV).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.run_lock import read_owner
from grpo_exp.run_search import find_run
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.faults import did_you_mean
from grpo_exp.sweeps.finding import find_sweep
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.operations import statuses_of
from grpo_exp.sweeps.summary import write_summary

if TYPE_CHECKING:
    from grpo_exp.reporting.report.run_data import RunData

_OPTIONS = ("--metric", "--output")
_METRICS = ("accuracy", "greedy_accuracy")


def main(words: Sequence[str]) -> int:
    """Read, analyse, write, and say where it is.

    Raises:
        ConfigError: A word is wrong, there is no such run or sweep, or the folder cannot be written.
    """
    name, options = _sort_out(words)
    found = _find(name)
    folder = Path(options["--output"]).expanduser().resolve() if "--output" in options else found.path / "report"
    why = why_not_writable(folder)
    if why is not None:
        raise ConfigError(f"--output={folder}: {why}; choose another folder with --output=FOLDER")
    if isinstance(found, SweepDirectory):
        _report_sweep(found, folder, metric=options.get("--metric", _METRICS[0]))
    elif "--metric" in options:
        raise ConfigError(f"--metric={options['--metric']}: is about a sweep, and {name} is one run; leave it out")
    else:
        _report_run(found, folder)
    return ExitCode.COMPLETED


def _sort_out(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    names, options = [], {}
    rest = iter(words)
    for word in rest:
        key, equals, value = word.partition("=")
        if key in _OPTIONS:
            value = value if equals else next(rest, "")
            if not value:
                raise ConfigError(f"{key}: is given nothing; write {key}=VALUE")
            options[key] = value
        elif word.startswith("-"):
            hint = did_you_mean(key, _OPTIONS)
            raise ConfigError(f"{word}: is nothing that report knows{hint}; it takes {', '.join(_OPTIONS)}")
        else:
            names.append(word)
    if len(names) != 1:
        raise ConfigError("Usage: grpo-exp report RUN|SWEEP [--metric=NAME] [--output=FOLDER]")
    return names[0], options


def _find(name: str) -> SweepDirectory | RunDirectory:
    """Return the sweep or the run of this name; a folder without a manifest is looked through for a run."""
    path = Path(name).expanduser()
    if path.is_dir() and not SweepDirectory(path).manifest.is_file():
        return find_run(path)
    return find_sweep(name)


def _report_sweep(sweep: SweepDirectory, folder: Path, *, metric: str) -> None:
    statuses = statuses_of(sweep)
    write_summary(sweep, statuses)
    print(f"{sweep.summary}: {len(statuses)} runs")
    # matplotlib and scipy, only where something is drawn.
    from grpo_exp.reporting.report.sweep_data import read_sweep
    from grpo_exp.reporting.report.sweep_report import build_sweep_report
    from grpo_exp.reporting.report.writing import write_report

    data = read_sweep(sweep, statuses)
    _check_metric(metric, [run for point in data.points for run in point.runs])
    print(write_report(build_sweep_report(data, metric=metric), folder))


def _check_metric(metric: str, runs: Sequence[RunData]) -> None:
    curves = sorted({name for run in runs for name in run.curves})
    if metric in _METRICS or metric in curves or ("/" in metric and not curves):
        return
    known = [*_METRICS, *curves]
    raise ConfigError(
        f"--metric={metric}: no run has measured it{did_you_mean(metric, known)}; there are {', '.join(known)}"
    )


def _report_run(directory: RunDirectory, folder: Path) -> None:
    from grpo_exp.reporting.report.run_data import read_run
    from grpo_exp.reporting.report.run_report import build_run_report
    from grpo_exp.reporting.report.writing import write_report

    settings = directory.read_config()
    state, reason = _state_of(directory)
    print(write_report(build_run_report(read_run(directory, settings, state=state, reason=reason)), folder))


def _state_of(directory: RunDirectory) -> tuple[str, str | None]:
    """Say how a run stands, in the words of a sweep."""
    owner = read_owner(directory.lock)
    result = directory.read_result()
    if owner.state == "alive":
        return "running", None
    if result is None:
        return "lost", "its process has ended without a result"
    is_by_rule = result["exit_code"] == ExitCode.ENDED_BY_RULE
    return ("ended_by_rule" if is_by_rule else result["status"]), result["reason"]
