"""A few completions of a run: what it wrote first and last, right and wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from grpo_exp.evaluation.saved_completions import read_rows
from grpo_exp.evaluation.table_rows import Choice, choose_rows
from grpo_exp.reporting.report.document import Sample
from grpo_exp.rundir import RunDirectory

#: Characters of a prompt or completion that are shown.
_MOST_CHARACTERS = 3000


def sample_completions(directory: RunDirectory, *, each: int = 1) -> list[Sample]:
    """Return completions of the first and of the last table: held out where there are such, else of training.

    Args:
        directory: The run.
        each: How many of least and how many of most reward of a table.
    """
    kind: Literal["eval", "train"] = "eval" if directory.completion_tables("eval") else "train"
    tables = directory.completion_tables(kind)
    if not tables:
        return []
    found: list[Sample] = []
    for step in dict.fromkeys((min(tables), max(tables))):
        rows = read_rows("completions", tables[step])
        where = f"{'held out' if kind == 'eval' else 'training'}, step {step}"
        found += _chosen(rows, Choice(best=each), f"{where}, highest reward")
        found += _chosen(rows, Choice(worst=each), f"{where}, lowest reward")
    return found


def _chosen(rows: Sequence[Mapping[str, Any]], choice: Choice, title: str) -> list[Sample]:
    return [to_sample(row, title) for row in choose_rows(rows, choice, default_count=None)]


def to_sample(row: Mapping[str, Any], title: str) -> Sample:
    """Return a row of a table of completions as it is shown."""
    scores = [f"{name} {_number(score['value'])} ({score['reason']})" for name, score in row["components"].items()]
    facts = [f"target {row['target']}", f"reward {_number(row['reward'])}", *scores, f"{row['num_tokens']} tokens"]
    if row["truncated"]:
        facts.append("cut at the length limit")
    return Sample(title, _short(str(row["prompt"])), _short(str(row["completion"])), facts)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _short(text: str) -> str:
    left_out = len(text) - _MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:_MOST_CHARACTERS]}\n[{left_out} more characters]"
