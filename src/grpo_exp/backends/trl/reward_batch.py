"""The reward as TRL asks for it: one function per component, all of them scored at once beforehand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.engine import score_components
from grpo_exp.rewards.score import OutcomeCounts, Score, outcome_counts

#: Columns that TRL does not hand on from its rows.
_NOT_COLUMNS = frozenset({"prompt", "completion", "completion_ids"})
#: What is counted for each component, besides what was right.
OUTCOMES = tuple(field.name for field in fields(OutcomeCounts) if field.name != "right")


class RewardBatch:
    """Scores each batch with all components at the same time, and hands TRL the values one component after another.

    Args:
        components: In the order of their weights.
        json_columns: Columns whose values are JSON text in the data set: a table wants one type for a column, and unit
            tests, for example, have several.
    """

    def __init__(self, components: Sequence[RewardComponent], json_columns: Sequence[str] = ()) -> None:
        self._components = components
        self._json_columns = json_columns
        self._completions: Sequence[Any] | None = None
        self._scores: dict[str, list[Score]] = {}

    def functions(self) -> list[Callable[..., list[float | None]]]:
        """Return the components as TRL calls them; `__name__` names the curve."""
        return [self._to_function(component.name) for component in self._components]

    def score(
        self,
        inputs: Sequence[Mapping[str, Any]],
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
    ) -> None:
        """Score a batch; the functions return its values from now on.

        Raises:
            Exception: What a component raised, or ValueError for a value that is not finite.
        """
        self._completions = None
        names = [name for name in inputs[0] if name not in _NOT_COLUMNS]
        columns: dict[str, Sequence[Any]] = {name: [row[name] for row in inputs] for name in names}
        columns |= {name: [json.loads(text) for text in columns[name]] for name in self._json_columns}
        columns |= {"prompts": prompts, "completion_ids": completion_ids}
        results = score_components(self._components, completions, columns)
        self._scores = {name: result.scores for name, result in results.items()}
        for name, scores in self._scores.items():
            _check_finite(name, scores)
        self._completions = completions

    @property
    def scores(self) -> Mapping[str, Sequence[Score]]:
        """The scores of the last batch, by component."""
        return self._scores

    def weights_at(self, step: int) -> list[float]:
        """Return the weights after `step` optimizer steps."""
        return [component.weight_at(step) for component in self._components]

    def outcomes(self) -> list[list[int]]:
        """Return how often each of OUTCOMES happened in the last batch, by component."""
        counts = [outcome_counts(scores) for scores in self._scores.values()]
        return [[asdict(one)[outcome] for outcome in OUTCOMES] for one in counts]

    def _to_function(self, name: str) -> Callable[..., list[float | None]]:
        def values(completions: Sequence[Any], **_: Any) -> list[float | None]:
            assert completions is self._completions  # the trainer scores each batch before TRL asks
            return [score.value for score in self._scores[name]]

        values.__name__ = name
        return values


def _check_finite(name: str, scores: Sequence[Score]) -> None:
    infinite = [score.value for score in scores if score.value is not None and not math.isfinite(score.value)]
    if infinite:
        raise ValueError(
            f"reward component {name!r} returned {infinite[0]}: a reward must be a finite number, or None where the "
            "target cannot be judged; correct the component"
        )
