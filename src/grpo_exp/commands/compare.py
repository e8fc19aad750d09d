"""Show two runs side by side: `grpo-exp compare RUN_FOLDER RUN_FOLDER [--json]`.

Settings that differ, what else differs (code, versions, machine, data), and how both ended. `--json` prints all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.reporting.side_by_side import Row, compare_runs
from grpo_exp.rundir import RunDirectory


def main(words: Sequence[str]) -> int:
    """Print the comparison."""
    folders = [Path(word).resolve() for word in words if word != "--json"]
    if len(folders) != 2 or any(word.startswith("-") and word != "--json" for word in words):
        raise ConfigError("Usage: grpo-exp compare RUN_FOLDER RUN_FOLDER [--json]")
    left, right = (RunDirectory(folder) for folder in folders)
    found = compare_runs(left, right)
    if "--json" in words:
        print(json.dumps(found.to_json(), indent=2))
        return ExitCode.COMPLETED
    console = build_console()
    console.print(f"A  {left.path}\nB  {right.path}", soft_wrap=True, highlight=False, markup=False)
    for title, rows in (("Settings", found.settings), ("Provenance", found.provenance), ("Result", found.result)):
        if rows:
            console.print(_table(title, rows))
        else:
            console.print(f"{title}: no difference", highlight=False, markup=False)
    return ExitCode.COMPLETED


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("", "A", "B"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row.name, *row.texts())
    return table
