"""Saved completions under a reward: values, reasons, times, and what differs from an earlier scoring."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_exp.errors import DataError
from grpo_exp.evaluation.saved_completions import RESULT_COLUMNS, ColumnNames, to_columns
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.engine import score_components, total_rewards
from grpo_exp.rewards.score import Score

_ROWS_AT_A_TIME = 1024
#: The name of the weighted sum among the components of a comparison.
TOTAL = "reward"


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows with their scores.

    Args:
        lines: The rows as they are written: `reward` and `components` first, then the columns of the input.
        scores: By component, in the order of the rows.
        seconds: Wall time by component.
    """

    lines: list[dict[str, Any]]
    scores: dict[str, list[Score]]
    seconds: dict[str, float]


def score_rows(
    rows: Sequence[Mapping[str, Any]],
    components: Sequence[RewardComponent],
    names: ColumnNames,
    *,
    primary: str,
    source: str = "input",
) -> Scored:
    """Score rows with all components. Schedules do not count: there is no step, so each weight is the one as set.

    Args:
        rows: At least one.
        components: The reward's components.
        names: Where the rows hold completion and target.
        primary: The component without whose value there is no reward.
        source: What the rows are called in messages.

    Raises:
        ConfigError: A column that a component needs is missing, or a row cannot be read.
    """
    completions, columns = to_columns(rows, names, source=source)
    scores: dict[str, list[Score]] = {component.name: [] for component in components}
    seconds = dict.fromkeys(scores, 0.0)
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        batch = {name: values[part] for name, values in columns.items()}
        for name, result in score_components(components, completions[part], batch).items():
            scores[name] += result.scores
            seconds[name] += result.seconds
    totals = total_rewards({c.name: c.weight for c in components}, scores, primary=primary)
    lines = [
        {
            "reward": total,
            "components": {
                name: {"value": column[place].value, "reason": column[place].reason} for name, column in scores.items()
            },
            **{key: value for key, value in row.items() if key not in RESULT_COLUMNS},
        }
        for place, (row, total) in enumerate(zip(rows, totals, strict=True))
    ]
    return Scored(lines, scores, seconds)


# --------------------------------------------------------------------------------------- compared with before


@dataclass(slots=True)
class Change:
    """How one component, or the reward, differs over the completions that both scored.

    Args:
        before: Earlier values.
        after: New values.
        reasons: (earlier reason, new reason) of those that changed; an earlier reason may be unknown (None).
        rows: Places of the changed rows in the input, from 1.
    """

    before: list[float | None] = field(default_factory=list)
    after: list[float | None] = field(default_factory=list)
    reasons: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    rows: list[int] = field(default_factory=list)

    @property
    def raised(self) -> int:
        """Completions that are worth more than before."""
        return sum(
            old is not None and new is not None and new > old for old, new in zip(self.before, self.after, strict=True)
        )

    @property
    def lowered(self) -> int:
        """Completions that are worth less than before."""
        return sum(
            old is not None and new is not None and new < old for old, new in zip(self.before, self.after, strict=True)
        )

    def means(self) -> tuple[float | None, float | None]:
        """Return the mean before and after, each over what has a value."""
        old, new = ([value for value in values if value is not None] for values in (self.before, self.after))
        return (statistics.fmean(old) if old else None, statistics.fmean(new) if new else None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a changed reward changes.

    Args:
        num_rows: Completions that were scored now.
        num_found: Those that the earlier scoring has, too.
        changes: By component, and `reward` where the earlier rows hold one.
    """

    num_rows: int
    num_found: int
    changes: dict[str, Change]


def compare_with(
    lines: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]], names: ColumnNames
) -> Comparison:
    """Compare scored rows with earlier ones of the same prompt and completion, wherever those stand.

    Args:
        lines: Rows as `score_rows` returned them.
        earlier: Rows that `score` wrote or that a run kept: with `components`, or one column per component.
        names: Where both hold the completion.

    Raises:
        DataError: The two have no completion in common, or an earlier value is no number.
    """
    with_prompt = all("prompt" in row for row in (*lines, *earlier))
    known: dict[str, deque[tuple[int, Mapping[str, Any]]]] = defaultdict(deque)
    for number, row in enumerate(earlier, start=1):
        known[_key(row, names, with_prompt=with_prompt)].append((number, row))
    changes: dict[str, Change] = {}
    num_found = 0
    for place, line in enumerate(lines, start=1):
        partners = known.get(_key(line, names, with_prompt=with_prompt))
        if partners:
            num_found += 1
            number, partner = partners.popleft()
            _add(changes, line, {name: _earlier_score(partner, name, number) for name in _names(line)}, place)
    if not num_found:
        raise DataError(
            "--against: none of its completions is among those of input; the same completions are compared; name a "
            "file that was scored from the same input, or the run that the input is of"
        )
    return Comparison(len(lines), num_found, changes)


def _key(row: Mapping[str, Any], names: ColumnNames, *, with_prompt: bool) -> str:
    prompt = row["prompt"] if with_prompt else None
    return json.dumps([prompt, row.get(names.completion)], sort_keys=True, default=str)


def _names(line: Mapping[str, Any]) -> list[str]:
    return [*line["components"], TOTAL]


def _add(changes: dict[str, Change], line: Mapping[str, Any], earlier: Mapping[str, _Value | None], place: int) -> None:
    """Add the difference of one completion; components that the earlier scoring lacks are left out."""
    for name, old in earlier.items():
        if old is None:
            continue
        new = {"value": line["reward"], "reason": None} if name == TOTAL else line["components"][name]
        change = changes.setdefault(name, Change())
        change.before.append(old.value)
        change.after.append(new["value"])
        if old.value != new["value"]:
            change.reasons[old.reason, new["reason"]] += 1
            change.rows.append(place)


@dataclass(frozen=True, slots=True)
class _Value:
    value: float | None
    reason: str | None = None


def _earlier_score(row: Mapping[str, Any], name: str, number: int) -> _Value | None:
    """Return value and reason of a component in an earlier row, or None where it has none.

    Raises:
        DataError: The row holds something else than a number or null as its value.
    """
    components = row.get("components")
    if not (isinstance(components, Mapping) and isinstance(components.get(name), Mapping)):
        # A column of that name, as TRL writes one; one that holds no numbers is another thing of that name.
        value = row.get(name)
        return _Value(_finite(value)) if name in row and (value is None or _is_number(value)) else None
    value, reason = components[name].get("value"), components[name].get("reason")
    if value is not None and not _is_number(value):
        raise DataError(
            f"--against: row {number} holds components.{name}.value={value!r}; a value is a number or null; name a "
            "file that `score` wrote, or correct the row"
        )
    return _Value(_finite(value), reason if isinstance(reason, str) else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: float | None) -> float | None:
    """Return the value; NaN stands for none in parquet."""
    return None if value is None or value != value else value
