"""The reward as named, weighted components: what a backend calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.columns import BatchScorer, Columns
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.python_function import find_function_fault
from grpo_exp.rewards.score import Score, reason_counts
from grpo_exp.rewards.scorers import SCORERS, LastBatch, build_cosine_scorer
from grpo_exp.rewards.worker_pool import PoolLimits, limit_shared_pool
from grpo_exp.settings.reward import Component, CosineLengthComponent, EngineSettings, PythonComponent, RewardSettings
from grpo_exp.settings.reward_schedule import ConstantSchedule, Schedule

__all__ = ["Columns", "RewardComponent", "build_components", "function_faults", "reason_counts"]


_CONSTANT = ConstantSchedule()


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One part of the reward.

    Args:
        name: The name of its curve.
        weight: Its factor in the reward.
        scorer: Scores a batch, given the name, the completions and the columns.
        schedule: How the weight changes over training.
    """

    name: str
    weight: float
    scorer: BatchScorer
    schedule: Schedule = _CONSTANT

    def weight_at(self, step: int) -> float:
        """Return the weight after `step` optimizer steps: 0 for the first batch."""
        return self.weight * self.schedule.factor_at(step)

    def score(self, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        """Score completions.

        Args:
            completions: Texts or lists of messages.
            columns: The data set's columns by name, one value per completion: `target` for what judges an answer,
                `prefilled` (optional: the prompt ends inside the reasoning), `completion_ids` or `num_tokens` for what
                counts tokens, `prompts` for functions of the user's.

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
    """Build the components in the order of the settings, and set the limits of the pool of checkers.

    Raises:
        ConfigError: A function of the user's cannot be imported.
    """
    faults = function_faults(settings)
    if faults:
        raise ConfigError(faults)
    limit_shared_pool(to_pool_limits(settings.engine))
    cosines = {name: c for name, c in settings.components.items() if isinstance(c, CosineLengthComponent)}
    scorers: dict[str, BatchScorer] = {
        name: _build_scorer(name, component) for name, component in settings.components.items() if name not in cosines
    }
    # The component that judges is asked twice for one batch: for its own curve, and for the cosine.
    for judge in {cosine.judged_by for cosine in cosines.values()}:
        scorers[judge] = LastBatch(scorers[judge])
    for name, cosine in cosines.items():
        scorers[name] = build_cosine_scorer(cosine, scorers[cosine.judged_by])
    return [
        RewardComponent(name, component.weight, scorers[name], component.schedule)
        for name, component in settings.components.items()
    ]


def _build_scorer(name: str, component: Component) -> BatchScorer:
    """Build one scorer.

    Raises:
        ConfigError: A function of the user's cannot be imported, or is none; the message starts with its setting.
    """
    try:
        return SCORERS[type(component)](component)
    except ConfigError as error:
        if isinstance(component, PythonComponent):
            faults = [f"reward.components.{name}.function={fault}" for fault in error.faults]
            raise ConfigError(faults) from error.__cause__
        raise


def to_pool_limits(settings: EngineSettings) -> PoolLimits:
    """Return the limits of the pool of checkers."""
    return PoolLimits(settings.timeout_seconds, settings.num_workers, round(settings.memory_gib * 2**30))


def function_faults(settings: RewardSettings) -> list[str]:
    """Return one message for each function of the user's that is not there, without importing anything."""
    return [
        f"reward.components.{name}.function={fault}"
        for name, component in settings.components.items()
        if isinstance(component, PythonComponent) and (fault := find_function_fault(component.function)) is not None
    ]
