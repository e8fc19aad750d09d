"""The reward as named, weighted components: what a backend calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.math_answer import score_math_batch
from grpo_exp.rewards.score import Score, reason_counts
from grpo_exp.rewards.think_format import score_think_format
from grpo_exp.settings.reward import Component, MathComponent, RewardSettings, ThinkFormatComponent

__all__ = ["Columns", "RewardComponent", "build_components", "reason_counts"]

Columns = Mapping[str, Sequence[Any]]
"""The data set's columns, one value per completion."""
_BatchScorer = Callable[[str, Sequence[Completion], Columns], list[Score]]


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One part of the reward.

    Args:
        name: The name of its curve.
        weight: Its factor in the reward.
        scorer: Scores a batch, given the name, the completions and the columns.
    """

    name: str
    weight: float
    scorer: _BatchScorer

    def score(self, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        """Score completions.

        Args:
            completions: Texts or lists of messages.
            columns: The data set's columns by name, one value per completion: `target` for mathematics,
                `prefilled` (optional: the prompt ends inside the reasoning).

        Returns:
            One score per completion, in the same order.

        Raises:
            ConfigError: A column that the component needs is missing or has another length.
        """
        for name, values in columns.items():
            if len(values) != len(completions):
                raise ConfigError(
                    f"column {name!r} has {len(values)} values for {len(completions)} completions; every "
                    "column has one value per completion; repeat each row's value for all of its completions"
                )
        return self.scorer(self.name, completions, columns)


def build_components(settings: RewardSettings) -> list[RewardComponent]:
    """Build the components in the order of the settings."""
    return [
        RewardComponent(name, component.weight, _scorer(component)) for name, component in settings.components.items()
    ]


def _scorer(component: Component) -> _BatchScorer:
    match component:
        case MathComponent():
            return _score_math
        case ThinkFormatComponent(strict_newlines=strict_newlines):
            return partial(_score_think_format, strict_newlines=strict_newlines)


def _score_math(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
    if "target" not in columns:
        raise ConfigError(
            f"reward.components.{name}: the data set has no column 'target' (it has {sorted(columns)}); "
            "kind=math compares each answer with it; "
            "name the column that holds the right answer in the dataset settings"
        )
    return score_math_batch(completions, columns["target"], prefilled=_prefilled(completions, columns))


def _score_think_format(
    name: str, completions: Sequence[Completion], columns: Columns, *, strict_newlines: bool
) -> list[Score]:
    return [
        score_think_format(completion, prefilled=prefilled, strict_newlines=strict_newlines)
        for completion, prefilled in zip(completions, _prefilled(completions, columns), strict=True)
    ]


def _prefilled(completions: Sequence[Completion], columns: Columns) -> list[bool]:
    """Return the column `prefilled`; where there is none, no prompt ends inside the reasoning."""
    if "prefilled" not in columns:
        return [False] * len(completions)
    return [bool(value) for value in columns["prefilled"]]
