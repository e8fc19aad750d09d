"""Completions for a person: a summary, then one after the other with all their scores."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpo_exp.evaluation.behaviours import BEHAVIOURS
from grpo_exp.evaluation.table_rows import reason_counts
from grpo_exp.reporting.columns import ABSENT

_RULE = "-" * 80


def print_summary(console: Console, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what a table holds: how many, rewards, lengths, behaviours, and the reasons of each component."""
    groups = {row["group"] for row in rows}
    replaced = len({row["group"] for row in rows if row["kept"] is False})
    text = f"{path.name}: {len(rows)} completions of {len(groups)} prompts"
    _line(console, text + (f", {replaced} of them replaced by dynamic sampling" if replaced else ""))
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    mean = f"{statistics.fmean(rewards):.3f}" if rewards else ABSENT
    unjudged = len(rows) - len(rewards)
    _line(console, f"reward mean {mean} over these" + (f"; {unjudged} cannot be judged" if unjudged else ""))
    lengths = [row["num_tokens"] for row in rows]
    truncated = sum(row["truncated"] for row in rows)
    _line(
        console,
        f"length {min(lengths)} to {max(lengths)} tokens, mean {statistics.fmean(lengths):.1f}; "
        f"{truncated} of {len(rows)} truncated ({truncated / len(rows):.1%})",
    )
    shares = [f"{name} {sum(name in row['behaviours'] for row in rows) / len(rows):.1%}" for name in BEHAVIOURS]
    _line(console, f"behaviours {', '.join(shares)}")
    table = Table("component", "reason", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    table.add_column("share", justify="right")
    for name, counts in reason_counts(rows).items():
        for reason, count in counts.items():
            table.add_row(Text(name), Text(printable(reason)), str(count), f"{count / len(rows):.1%}")
    console.print(table)


def print_rows(console: Console, rows: Sequence[Mapping[str, Any]], *, num_rows: int) -> None:
    """Print completions one below the other.

    Args:
        console: Where to print.
        rows: Those to print.
        num_rows: How many the table holds.
    """
    for row in rows:
        _line(console, _RULE, "dim")
        for text, style in _row_lines(row):
            _line(console, text, style)
    _line(console, _RULE, "dim")
    _line(console, f"{len(rows)} of {num_rows} completions")


def _row_lines(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    facts = [f"group {row['group']}", f"reward {_number(row['reward'])}"]
    if row["advantage"] is not None:
        facts.append(f"advantage {row['advantage']:+.3f}")
    facts.append(f"{row['num_tokens']} tokens{', truncated' if row['truncated'] else ''}")
    if row["kept"] is False:
        facts.append("replaced by dynamic sampling")
    yield "  ".join(facts), "bold"
    scores = row["components"].items()
    yield "  ".join(f"{name} {_number(score['value'])} ({score['reason']})" for name, score in scores), ""
    for name, snippet in row["behaviours"].items():
        yield f"{name}: {snippet}", "cyan"
    target = row["target"] if isinstance(row["target"], str) else " | ".join(row["target"])
    for title, text in (("prompt", row["prompt"]), ("target", target), ("completion", row["completion"])):
        yield title, "dim"
        yield from ((f"  {line}", "") for line in text.split("\n"))


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True)


def printable(text: str) -> str:
    """Write control characters as escapes: a policy may write what would move the cursor or change the screen."""
    return "".join(c if c == "\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
