"""Read a run's completions: `grpo-exp completions RUN_FOLDER [--step N|last] [--eval] [--worst K] ...`.

Prints a summary of the table (lengths, truncated share, counts of reasons), then completions with all their scores.

  --step N          table of this optimizer step; `last` is the default
  --eval            a held-out evaluation instead of a batch of training
  --worst K         the K completions of least reward; with --component, of least value in that component
  --best K          the K of most; together with --worst both
  --component NAME  what --worst, --best and --reason look at (default: the reward, and all components)
  --reason SLUG     only completions that got this reason
  --group I         only the completions of one prompt
  --json            one JSON object a line instead: the rows as `grpo-exp score` writes them
Without --worst, --best, --group and --json the first 5 are printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.evaluation.saved_completions import read_rows, to_line
from grpo_exp.evaluation.table_rows import Choice, choose_rows
from grpo_exp.reporting.completions_view import print_rows, print_summary
from grpo_exp.run_search import find_run
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.faults import did_you_mean

_WITH_VALUE = ("--step", "--worst", "--best", "--component", "--reason", "--group")
_SWITCHES = ("--eval", "--json")


@dataclass(slots=True)
class _Words:
    """What was typed, sorted out."""

    run: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)


def main(words: Sequence[str]) -> int:
    """Find the table, choose rows, and print them.

    Raises:
        ConfigError: A word is wrong, or there is no such run, table, component, reason or group.
    """
    typed = _sort_out(words)
    if typed.run is None:
        print(__doc__)
        return ExitCode.COMPLETED
    choice = Choice(
        worst=_number(typed, "--worst"),
        best=_number(typed, "--best"),
        component=typed.values.get("--component"),
        reason=typed.values.get("--reason"),
        group=_number(typed, "--group"),
    )
    path = _find_table(find_run(Path(typed.run)), "eval" if "--eval" in typed.switches else "train", typed)
    rows = read_rows("RUN_FOLDER", path)
    if not {"components", "group", "num_tokens"} <= rows[0].keys():
        raise ConfigError(f"{path}: is no table of completions that a run has written; take it out of the folder")
    if "--json" in typed.switches:
        sys.stdout.writelines(to_line(row) for row in choose_rows(rows, choice, default_count=None))
        return ExitCode.COMPLETED
    chosen = choose_rows(rows, choice, default_count=5)
    console = build_console()
    print_summary(console, path, rows)
    print_rows(console, chosen, num_rows=len(rows))
    return ExitCode.COMPLETED


def _sort_out(words: Sequence[str]) -> _Words:
    typed, rest = _Words(), iter(words)
    for word in rest:
        key, equals, value = word.partition("=")
        if key in _WITH_VALUE:
            value = value if equals else next(rest, "")
            if not value or value.startswith("--"):
                raise ConfigError(f"{key}: is given nothing; write {key} VALUE")
            typed.values[key] = value
        elif word in _SWITCHES:
            typed.switches.add(word)
        elif word.startswith("-"):
            known = (*_WITH_VALUE, *_SWITCHES)
            hint = did_you_mean(key, known)
            raise ConfigError(f"{word}: is nothing that completions knows{hint}; it takes {', '.join(known)}")
        elif typed.run is not None:
            raise ConfigError(f"{word}: a second folder; completions reads one run; leave one out")
        else:
            typed.run = word
    if typed.run is None and (typed.values or typed.switches):
        raise ConfigError("RUN_FOLDER: is missing; write grpo-exp completions RUN_FOLDER ...")
    return typed


def _number(typed: _Words, key: str) -> int | None:
    text = typed.values.get(key)
    if text is None:
        return None
    least = 0 if key == "--group" else 1
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{key}={text}: must be a whole number from {least} on; for example {key} {max(least, 3)}")
    return int(text)


def _find_table(directory: RunDirectory, kind: str, typed: _Words) -> Path:
    """Return the file of the step that was asked for, or say which there are."""
    tables = directory.completion_tables(kind)
    other = "train" if kind == "eval" else "eval"
    if not tables:
        raise ConfigError(_no_tables(directory, kind, list(directory.completion_tables(other))))
    asked = typed.values.get("--step", "last")
    if asked == "last":
        return tables[max(tables)]
    if not asked.isdecimal() or int(asked) not in tables:
        there = ", ".join(map(str, tables))
        raise ConfigError(f"--step={asked}: there is no such table; there are those of steps {there}, and `last`")
    return tables[int(asked)]


def _no_tables(directory: RunDirectory, kind: str, other_steps: Sequence[int]) -> str:
    what, switch = ("a held-out evaluation", "without --eval") if kind == "eval" else ("training", "with --eval")
    setting = "eval_max_rows=0" if kind == "eval" else "every_steps=null"
    text = f"{directory.path}: has no completions of {what}"
    if other_steps:
        return f"{text}; ask {switch}: there are tables of steps {', '.join(map(str, other_steps))}"
    if old := sorted(path.name for path in directory.completions.glob("held_out_*.jsonl")):
        names = ", ".join(old)
        return f"{text}: it is of an older form ({names} in completions/); read these lines of JSON, or run it again"
    return f"{text}: none was written yet, or trainer.completions.{setting}; wait for the first step, or run it again"
