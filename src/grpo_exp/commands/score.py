"""Score saved completions under a reward: `grpo-exp score reward=math input=FILE output=FILE [--against OTHER]`.

Words are `reward=OPTION` (default: math), `reward.KEY=VALUE` as for training, and those below. Without an option,
`reward.components={NAME: {kind: KIND, ...}}` is the whole reward; any component may be the primary one.

  input              JSON lines, parquet, or a run's folder (all its completions)
  output             JSON lines: one line per row of the input, in the same order
  column.completion  column with the completion, text or messages (default: completion)
  column.target      column with the right answer (default: target)
  --against          an earlier output, or a run's folder: shows what the reward changes
Other columns are kept, and handed to the components that want them (prefilled, num_tokens, tests ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.evaluation.rescoring import Comparison, Scored, compare_with, score_rows
from grpo_exp.evaluation.saved_completions import ColumnNames, check_writable, read_rows, write_rows
from grpo_exp.rewards.components import build_components
from grpo_exp.rewards.score import outcome_counts, reason_counts
from grpo_exp.settings import load
from grpo_exp.settings.faults import did_you_mean
from grpo_exp.settings.reward import ScoredReward

_KEYS = ("input", "output", "column.completion", "column.target")
_NUM_EXAMPLES = 5


@dataclass(slots=True)
class _Words:
    """What was typed, sorted out."""

    given: dict[str, str] = field(default_factory=dict)
    reward: list[str] = field(default_factory=list)
    against: str | None = None


def main(words: Sequence[str]) -> int:
    """Read, score, write, and print a summary by component and by reason.

    Raises:
        ConfigError: A word, a setting, a column or a file is wrong.
    """
    if not words:
        print(__doc__)
        return ExitCode.COMPLETED
    typed = _sort_out(words)
    source, target = (Path(typed.given[key]).expanduser() for key in ("input", "output"))
    settings = load.load_group("reward", ScoredReward, typed.reward)
    columns = {key.removeprefix("column."): name for key, name in typed.given.items() if key.startswith("column.")}
    names = ColumnNames(**columns)
    _check_output(source, target)
    rows = read_rows("input", source)
    check_writable(target)
    earlier = None if typed.against is None else read_rows("--against", Path(typed.against).expanduser())
    scored = score_rows(rows, build_components(settings), names, primary=settings.primary, source=f"input={source}")
    comparison = None if earlier is None else compare_with(scored.lines, earlier, names)
    write_rows(target, scored.lines)
    console = build_console()
    _print_summary(console, scored)
    _tell_cut_texts(console, rows)
    if comparison is not None:
        _print_comparison(console, comparison)
    console.print(f"{target}: {len(rows)} rows", soft_wrap=True)
    return ExitCode.COMPLETED


def _sort_out(words: Sequence[str]) -> _Words:
    typed = _Words()
    rest = iter(words)
    for word in rest:
        key, equals, value = word.partition("=")
        if key == "--against":
            typed.against = value if equals else next(rest, "")
        elif key in _KEYS and value:
            if key in typed.given:
                raise ConfigError(f"{word}: {key} is given twice; it has one value; leave one out")
            typed.given[key] = value
        elif key.lstrip("+~").partition(".")[0] == "reward":
            typed.reward.append(word)
        else:
            raise ConfigError(_unknown_word(word, key))
    faults = [f"{key}: is missing; add {key}=FILE" for key in ("input", "output") if key not in typed.given]
    if typed.against == "":
        faults.append("--against: is given nothing; add an earlier output or a run's folder")
    options = [word for word in typed.reward if word.startswith("reward=")]
    if len(options) > 1:
        faults.append(f"{' '.join(options)}: there is one reward; leave all but one out")
    if faults:
        raise ConfigError(faults)
    if not options:
        typed.reward = _without_option(typed.reward)
    return typed


def _without_option(words: Sequence[str]) -> list[str]:
    """Return the words of a reward for which no option is chosen: on top of the default, or all of it."""
    bare = [word.lstrip("+") for word in words]
    if any(word.startswith("reward.components=") for word in bare):
        return [f"++{word}" for word in bare]
    return ["reward=math", *words]


def _unknown_word(word: str, key: str) -> str:
    if key in _KEYS:
        return f"{word}: has no value; write {key}=VALUE"
    known = (*_KEYS, "--against", "reward")
    hint = did_you_mean(key, known)
    return f"{word}: is nothing that score knows{hint}; it takes {', '.join(known)} and reward.KEY=VALUE"


def _check_output(source: Path, target: Path) -> None:
    """Refuse, before anything is scored, an output that would destroy something or cannot be written."""
    if target.is_dir():
        raise ConfigError(f"output={target}: is a folder; give a file")
    if target.suffix == ".parquet":
        raise ConfigError(
            f"output={target}: is written as JSON lines, never as parquet; give a name that ends in .jsonl"
        )
    if target.exists() and source.exists() and target.samefile(source):
        raise ConfigError(f"output={target}: is the input, which would be lost; give another file")


def _print_summary(console: Console, scored: Scored) -> None:
    table = Table("component", box=None, pad_edge=False)
    for heading in ("mean", "right", "wrong", "timeout", "crash", "unjudgeable", "seconds"):
        table.add_column(heading, justify="right")
    reasons = Table("component", "reason", box=None, pad_edge=False)
    reasons.add_column("rows", justify="right")
    reasons.add_column("share", justify="right")
    for name, scores in scored.scores.items():
        counts = outcome_counts(scores)
        values = [score.value for score in scores if score.value is not None]
        numbers = (counts.right, counts.wrong, counts.timeout, counts.crash, counts.unjudgeable)
        table.add_row(
            name,
            _number(sum(values) / len(values) if values else None),
            *map(str, numbers),
            f"{scored.seconds[name]:.2f}",
        )
        for reason, count in reason_counts(scores).items():
            reasons.add_row(name, reason, str(count), f"{count / len(scores):.1%}")
    console.print(table, "", reasons, "")
    rewards = [line["reward"] for line in scored.lines if line["reward"] is not None]
    mean = _number(sum(rewards) / len(rewards) if rewards else None)
    console.print(f"reward: mean {mean}; {len(scored.lines) - len(rewards)} rows without one (unjudgeable target)")


def _tell_cut_texts(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    cut = sum(bool(row.get("characters_left_out")) for row in rows)
    if cut:
        console.print(
            f"note: {cut} completions were cut in the middle when they were saved "
            "(trainer.completions.max_characters); their scores are those of what is left",
            soft_wrap=True,
        )


def _print_comparison(console: Console, comparison: Comparison) -> None:
    console.print(f"\nagainst: {comparison.num_found} of {comparison.num_rows} completions are in both")
    table = Table("component", box=None, pad_edge=False)
    for heading in ("changed", "raised", "lowered", "mean before", "mean now"):
        table.add_column(heading, justify="right")
    table.add_column("rows")
    for name, change in comparison.changes.items():
        before, after = change.means()
        more = ", ..." if len(change.rows) > _NUM_EXAMPLES else ""
        table.add_row(
            name, str(len(change.rows)), str(change.raised), str(change.lowered), _number(before), _number(after),
            ", ".join(map(str, change.rows[:_NUM_EXAMPLES])) + more,
        )  # fmt: skip
    console.print(table)
    for name, change in comparison.changes.items():
        for (old, new), count in change.reasons.most_common():
            if new is not None:
                console.print(f"  {name}: {old or '(reason unknown)'} -> {new}: {count}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
