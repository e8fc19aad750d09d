"""The table at the end of a run: before and after, with intervals, and where everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from grpo_exp.reporting.columns import ABSENT, format_duration
from grpo_exp.statistics import Interval, wilson_interval


def accuracy_interval(evaluation: Mapping[str, Any], key: str) -> Interval | None:
    """Return the 95 % interval of an accuracy, None if neither it nor the number of prompts is known.

    Args:
        evaluation: `before` or `after` from `result.json`.
        key: `accuracy` or `greedy_accuracy`; the interval is looked for under `<key>_interval`. If it is not
            there, it is Wilson's, from the number of prompts: with several samples per prompt that is as if
            they all agreed, an interval too wide rather than too narrow.
    """
    interval = evaluation.get(f"{key}_interval")
    if interval is not None:
        return Interval(*interval)
    share, num_prompts = evaluation.get(key), evaluation.get("num_prompts")
    if share is None or num_prompts is None:
        return None
    return wilson_interval(share * num_prompts, num_prompts)


def build_summary_table(result: Mapping[str, Any]) -> Table:
    """Build the before/after table from the content of `result.json`.

    A value that is not known is shown as `-`; a row that is known for neither is left out.
    """
    evaluations = result.get("eval") or {}
    before = evaluations.get("before") or {}
    after = evaluations.get("after") or {}
    table = Table(
        title="Held-out prompts",
        caption=_caption(after or before),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("", no_wrap=True)
    for title in ("before", "after", "change"):
        table.add_column(title, justify="right", no_wrap=True)
    for title, key in (("sampled accuracy", "accuracy"), ("greedy accuracy", "greedy_accuracy")):
        intervals = (accuracy_interval(before, key), accuracy_interval(after, key))
        _add_row(table, title, (before.get(key), after.get(key)), intervals=intervals)
    means = (before.get("rewards", {}), after.get("rewards", {}))
    for name in dict.fromkeys([*means[0], *means[1]]):
        _add_row(table, f"reward: {name}", (means[0].get(name), means[1].get(name)))
    lengths = (before.get("completion_length"), after.get("completion_length"))
    _add_row(table, "length in tokens", lengths, number_format=".1f")
    truncated = (before.get("truncated_fraction"), after.get("truncated_fraction"))
    _add_row(table, "cut at length limit", truncated)
    return table


def print_summary(
    result: Mapping[str, Any],
    console: Console,
    *,
    run_directory: Path,
    plot_path: Path | None = None,
    open_commands: Sequence[str] = (),
) -> None:
    """Print how a run ended, the before/after table, and where its things are.

    Args:
        result: The content of `result.json`.
        console: Where to print.
        run_directory: The run directory.
        plot_path: The PNG of the curves, if there is one.
        open_commands: The shell commands that open the trackers, one each.
    """
    seconds = format_duration(result["wall_seconds"])
    reason = f": {result['reason']}" if result.get("reason") else ""
    lines = [f"{result['status'].capitalize()} after {result['steps']} steps in {seconds}{reason}"]
    places = [("run", str(run_directory))]
    if plot_path is not None:
        places.append(("curves", str(plot_path)))
    places += [("open", command) for command in open_commands]
    lines += [f"  {title:<8}{place}" for title, place in places]
    table = build_summary_table(result)
    if table.row_count:
        console.print(table)
    for line in lines:
        # Paths and commands are to be copied: no markup, no colours, no line breaks inside.
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _add_row(
    table: Table,
    title: str,
    values: tuple[float | None, float | None],
    *,
    intervals: tuple[Interval | None, Interval | None] = (None, None),
    number_format: str = ".3f",
) -> None:
    before, after = values
    if before is None and after is None:
        return
    cells = []
    for value, interval in zip(values, intervals, strict=True):
        text = ABSENT if value is None else format(value, number_format)
        if value is not None and interval is not None:
            text += f"  {interval.low:.3f} to {interval.high:.3f}"
        cells.append(text)
    change = ABSENT if before is None or after is None else format(after - before, f"+{number_format}")
    table.add_row(title, *cells, change)


def _caption(evaluation: Mapping[str, Any]) -> str | None:
    num_prompts = evaluation.get("num_prompts")
    if num_prompts is None:
        return None
    samples = f", {evaluation['num_samples']} samples each" if "num_samples" in evaluation else ""
    return f"{num_prompts} prompts{samples}; ranges are 95 % intervals"
