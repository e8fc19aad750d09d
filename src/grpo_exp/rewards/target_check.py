"""Targets checked against themselves before training: what cannot be judged is listed, never scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import DataError
from grpo_exp.rewards.code.unit_tests import Tests, read_tests
from grpo_exp.rewards.components import to_pool_limits
from grpo_exp.rewards.countdown import check_task
from grpo_exp.rewards.gym_answer import check_entry
from grpo_exp.rewards.math_answer import check_target
from grpo_exp.rewards.pattern_answer import check_pattern_target
from grpo_exp.rewards.plain_answers import check_plain_target, judge_exactly, judge_letter, judge_numerically
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.targets import Target
from grpo_exp.rewards.worker_pool import default_num_workers, limit_shared_pool
from grpo_exp.settings.reward import (
    CodeComponent,
    CountdownComponent,
    ExactComponent,
    Gsm8kComponent,
    LetterComponent,
    MathComponent,
    NumericComponent,
    ReasoningGymComponent,
    RegexComponent,
    RewardSettings,
)

MAX_UNJUDGEABLE_SHARE = 0.05
"""A data set of which more cannot be judged is refused."""

TargetCheck = Callable[[Target], Score]

#: Kind of component -> what judges a target against itself. Kinds that are not here know no target.
_CHECKS: dict[type, Callable[[Any], TargetCheck]] = {
    MathComponent: lambda component: check_target,
    Gsm8kComponent: lambda component: check_target,
    LetterComponent: lambda component: lambda target: check_plain_target(target, judge_letter),
    ExactComponent: lambda component: _plainly(judge_exactly(component)),
    NumericComponent: lambda component: _plainly(judge_numerically(component)),
    RegexComponent: lambda component: lambda target: check_pattern_target(component, target),
}


@dataclass(frozen=True, slots=True)
class UnjudgeableTarget:
    """A row whose target a component cannot judge.

    Args:
        row: Its place in the columns, from 0.
        component: Name of the component.
        reason: A slug of the table in `score`.
        target: The target as it stands in the data.
    """

    row: int
    component: str
    reason: str
    target: Any


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What the check found.

    Args:
        num_rows: Rows that were checked.
        unjudgeable: At most one entry per row: the first component that cannot judge it.
    """

    num_rows: int
    unjudgeable: tuple[UnjudgeableTarget, ...]

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Rows by (component, reason), most frequent first."""
        return dict(Counter((entry.component, entry.reason) for entry in self.unjudgeable).most_common())


#: Kind of component -> the columns by which a row is judged besides its target, and what judges them.
_ROW_CHECKS: dict[type, tuple[tuple[str, ...], Callable[..., Score]]] = {
    CodeComponent: (("tests", "mode"), lambda tests, mode: _as_score(read_tests(tests, mode))),
    CountdownComponent: (("target", "nums"), check_task),
    ReasoningGymComponent: (("entry",), check_entry),
}


def check_rows(settings: RewardSettings, rows: Sequence[Mapping[str, Any]]) -> TargetReport:
    """Judge each row against itself with every component that can tell from the data alone.

    Args:
        settings: The reward.
        rows: Plain rows; all of them have the same columns.

    Raises:
        DataError: More than 5 % of the rows cannot be judged.
    """
    names = list(rows[0]) if rows else []
    return check_targets(settings, {name: [row[name] for row in rows] for name in names})


def check_targets(settings: RewardSettings, columns: Mapping[str, Sequence[Any]]) -> TargetReport:
    """Judge each target against itself with every component that knows one.

    Plain numbers and words are settled in this process; only expressions start the pool of checkers.

    Args:
        settings: The reward.
        columns: The data set's columns by name, one value per row: `target`, and what some kinds need besides. A
            component whose columns are not there is not asked.

    Raises:
        DataError: More than 5 % of the rows cannot be judged.
    """
    checks = {name: build(c) for name, c in settings.components.items() if (build := _CHECKS.get(type(c))) is not None}
    row_checks = {name: _ROW_CHECKS[type(c)] for name, c in settings.components.items() if type(c) in _ROW_CHECKS}
    targets = columns.get("target")
    if targets is None or not (checks or row_checks):
        return TargetReport(0, ())
    limit_shared_pool(to_pool_limits(settings.engine))
    found: dict[int, UnjudgeableTarget] = {}
    num_workers = settings.engine.num_workers or default_num_workers()
    verdicts = {name: _judge_all(check, targets, num_workers) for name, check in checks.items()}
    for name, (needed, judge) in row_checks.items():
        if all(column in columns for column in needed):
            with ThreadPoolExecutor(num_workers) as threads:
                verdicts[name] = list(threads.map(judge, *(columns[column] for column in needed)))
    for name, scores in verdicts.items():
        for row, score in enumerate(scores):
            if score.value is None:
                found.setdefault(row, UnjudgeableTarget(row, name, score.reason, targets[row]))
    report = TargetReport(len(targets), tuple(found[row] for row in sorted(found)))
    if len(found) > MAX_UNJUDGEABLE_SHARE * len(targets):
        raise DataError(_refusal(report))
    return report


def _as_score(tests: Tests | Score) -> Score:
    return tests if isinstance(tests, Score) else Score(1.0, "match")


def _judge_all(check: TargetCheck, targets: Sequence[Any], num_workers: int) -> list[Score]:
    """Judge each different target once, as many at a time as there are checkers."""
    keys = [repr(target) for target in targets]
    different = dict(zip(keys, targets, strict=True))
    with ThreadPoolExecutor(num_workers) as threads:
        judged = dict(zip(different, threads.map(check, different.values()), strict=True))
    return [judged[key] for key in keys]


def _plainly(judge: Callable[[str, Target], Score]) -> TargetCheck:
    return lambda target: check_plain_target(target, judge)


def _refusal(report: TargetReport) -> str:
    counts = ", ".join(f"{count} {reason} ({name})" for (name, reason), count in report.counts.items())
    different = dict.fromkeys(repr(entry.target)[:80] for entry in report.unjudgeable)
    examples = ", ".join(list(different)[:3])
    return (
        f"dataset: {len(report.unjudgeable)} of {report.num_rows} targets cannot be judged: {counts}; for example "
        f"{examples}; at most {MAX_UNJUDGEABLE_SHARE:.0%} may be left out; choose the reward and the target column "
        "that fit the data, or correct the file"
    )
