"""Rows to evaluate on: a table of problems, or the held-out rows of a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path
from typing import Any, cast

from grpo_exp.data.columns import has_column, is_prompt, is_unicode, read_column, read_target
from grpo_exp.data.json_lines import read_objects
from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.rewards.target_check import check_targets
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.benchmark import BenchmarkSettings, TableBenchmark
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.reward import RewardSettings

#: What a sample has besides the columns of its row: a column of such a name would be lost, or taken for it.
_OF_A_SAMPLE = frozenset({"prompt", "completion", "target", "num_tokens", "truncated", "components", "prefilled"})
#: Held-out rows need no training batch.
_NO_BATCH = BatchPlan(1, 1, 1, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class BenchmarkRows:
    """What is evaluated on."""

    rows: tuple[PromptRow, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of rows that were left out."""


def _check_names(key: str, names: Sequence[str]) -> None:
    for name in names:
        if name in _OF_A_SAMPLE:
            raise DataError(
                f"benchmark.{key}=[{name}]: each sample has a {name!r} of its own, so a column of that name cannot be "
                f"kept beside it; rename the column, or leave it out of benchmark.{key}"
            )


def load_benchmark(
    settings: BenchmarkSettings, dataset: DatasetSettings, *, seed: int, reward: RewardSettings
) -> BenchmarkRows:
    """Return the rows of a benchmark whose targets the reward can judge; the others are counted.

    Args:
        settings: The benchmark.
        dataset: Whose held-out rows are meant with `held_out`.
        seed: Of procedural data.
        reward: Judges.

    Raises:
        DataError: The rows cannot be read, lack a column, or none is left.
    """
    _check_names("group_by", settings.group_by)
    if settings.kind == "held_out":
        data = load_prompts(dataset, seed=seed, plan=_NO_BATCH, reward=reward)
        found = BenchmarkRows(data.evaluation, data.dropped)
    else:
        _check_names("extra_columns", settings.extra_columns)
        found = _judgeable(_read_table(settings), reward)
    _check_groups(settings, found.rows)
    return found


def _read_table(settings: TableBenchmark) -> BenchmarkRows:
    assert settings.path is not None  # TableBenchmark refuses a null path
    path = Path(settings.path).expanduser()
    rows = (row for _, row in read_objects("benchmark.path", path)) if _is_file(path) else _read_hub(settings)
    dropped: Counter[str] = Counter()
    usable: list[PromptRow] = []
    for number, row in enumerate(islice(rows, settings.max_prompts)):
        if number == 0:
            _check_columns(settings, row)
        converted = _to_row(row, settings)
        if isinstance(converted, str):
            dropped[converted] += 1
        else:
            usable.append(converted)
    if not usable:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "it is empty"
        raise DataError(f"benchmark.path={settings.path}: none of its rows can be used ({reasons}); correct it")
    return BenchmarkRows(tuple(usable), dropped)


def _is_file(path: Path) -> bool:
    """Say whether a file is meant: one that exists, or a path that cannot be the name of a data set on the hub."""
    return path.exists() or path.suffix in {".jsonl", ".json"} or str(path).count("/") != 1


def _read_hub(settings: TableBenchmark) -> Iterable[dict[str, Any]]:
    from datasets import load_dataset  # takes seconds, and only data sets of the hub need it

    try:
        table = load_dataset(
            str(settings.path), name=settings.config_name, split=settings.split, revision=settings.revision
        )
        return cast(Iterable[dict[str, Any]], table)
    except Exception as error:  # the hub, the network and the files of others: whatever is wrong is told
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(
            f"benchmark.path={settings.path}: is no file here and cannot be read from the hub ({why}); give a file "
            "with benchmark.path=FILE.jsonl, or fetch it once on a machine with a network"
        ) from error


def _check_columns(settings: TableBenchmark, row: Mapping[str, Any]) -> None:
    named = [("prompt_column", settings.prompt_column), ("target_column", settings.target_column)]
    named += [("extra_columns", name) for name in settings.extra_columns]
    named += [("group_by", name) for name in settings.group_by]
    faults = [
        f"benchmark.{key}={name}: {settings.path} has no column {name!r}; its columns are {', '.join(sorted(row))}; "
        f"name one of them with benchmark.{key}=COLUMN"
        for key, name in named
        if name is not None and not has_column(row, name)
    ]
    if faults:
        raise DataError(faults)


def _to_row(row: Mapping[str, Any], settings: TableBenchmark) -> PromptRow | str:
    """Return a row, or the reason why it cannot be used."""
    prompt = read_column(row, settings.prompt_column)
    if not is_prompt(prompt):
        return "without a prompt"
    target = read_target(row, settings.target_column, settings.target_format)
    if target is None:
        return "without a target"
    columns = {name: read_column(row, name) for name in (*settings.extra_columns, *settings.group_by)}
    if not is_unicode([prompt, target, columns]):
        return "with text that is no Unicode"
    return PromptRow(build_prompt(prompt, settings.system_prompt), target, columns)


def _judgeable(found: BenchmarkRows, reward: RewardSettings) -> BenchmarkRows:
    """Leave out what cannot be judged; unlike training data, a benchmark is not refused for it: it is as it is."""
    targets = [row.to_dict()["target"] for row in found.rows]
    report = check_targets(reward, {"target": targets}, max_share=1.0)
    left_out = {entry.row for entry in report.unjudgeable}
    rows = tuple(compress(found.rows, [number not in left_out for number in range(len(found.rows))]))
    if not rows:
        (name, reason), _ = next(iter(report.counts.items()))
        raise DataError(
            f"benchmark: {name} can judge none of the {len(found.rows)} targets ({reason}); choose a reward that can, "
            "for example reward=math, or another benchmark.target_column"
        )
    counted = {f"whose target {name} cannot judge ({why})": number for (name, why), number in report.counts.items()}
    return BenchmarkRows(rows, {**found.dropped, **counted})


def _check_groups(settings: BenchmarkSettings, rows: tuple[PromptRow, ...]) -> None:
    missing = [name for name in settings.group_by if name not in rows[0].columns]
    if missing:
        known = ", ".join(rows[0].columns) or "none"
        raise DataError(
            f"benchmark.group_by=[{', '.join(missing)}]: no such column in the held-out rows (there are: {known}); "
            "hand it on with dataset.extra_columns=[COLUMN]"
        )
