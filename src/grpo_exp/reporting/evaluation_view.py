"""Results of an evaluation as tables for a person, and as a curve."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grpo_exp.reporting.columns import ABSENT
from grpo_exp.rundir import write_bytes, write_text


def print_results(console: Console, results: Mapping[int, Mapping[str, Any]]) -> None:
    """Print all metrics by step, then the groups of the last step."""
    last = results[max(results)]
    prompts = f"{last['num_prompts']} prompts, {last['num_samples']} samples each"
    title = f"{last['benchmark']}: {prompts}; ranges are 95 % intervals over prompts"
    console.print(_table(title, "step", {str(step): results[step] for step in sorted(results)}))
    for column, groups in last.get("groups", {}).items():
        console.print(_table(escape(f"by {column}, step {last['step']}"), escape(column), groups))
    if "change" in last:
        told = last["change"]
        console.print(
            f"change of the mean since step {told['since_step']}: {told['value']:+.3f} {_range(told['interval'])}",
            highlight=False,
        )
    for reason, count in last["left_out"].items():
        console.print(f"{count} rows {reason} were left out", highlight=False, soft_wrap=True, markup=False)
    if last["unjudged"]:
        console.print(f"{last['unjudged']} prompts could not be judged and are in no number", highlight=False)


def _table(title: str, first: str, results: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    names = list(dict.fromkeys(name for result in results.values() for name in result["metrics"]))
    for name in ("prompts", *names, "greedy", "tokens", "cut"):
        table.add_column(name.replace("_at_", "@"), justify="right")
    for label, result in results.items():
        metrics = [result["metrics"].get(name) for name in names]
        greedy = result.get("greedy_accuracy")
        table.add_row(
            escape(label),  # the value of a column may hold brackets
            str(result["num_prompts"]),
            *(ABSENT if m is None else f"{m['value']:.3f}\n{_range(m['interval'])}" for m in metrics),
            ABSENT if greedy is None else f"{greedy:.3f}",
            f"{result['completion_length']['mean']:.1f}",
            f"{result['truncated_fraction']:.1%}",
        )
    return table


def _range(interval: list[float] | None) -> str:
    return ABSENT if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def write_curve(path: Path, results: Mapping[int, Mapping[str, Any]]) -> Path:
    """Write all metrics by step as a CSV file, and a picture beside it; return the picture."""
    # matplotlib, only where something is drawn.
    from grpo_exp.reporting.report.run_figures import benchmark_picture

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("step", "metric", "value", "low_95", "high_95"))
    for step in sorted(results):
        for name, metric in results[step]["metrics"].items():
            writer.writerow((step, name, metric["value"], *(metric["interval"] or ("", ""))))
    write_text(path, out.getvalue())
    name = results[max(results)]["benchmark"]
    picture = benchmark_picture(name, {step: result["metrics"] for step, result in results.items()})
    target = path.with_suffix(".png")
    write_bytes(target, picture.png)
    return target
