"""TRL's GRPOTrainer with a clock around its hooks, and rows left out that cannot be judged."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from grpo_exp.rewards.components import RewardComponent

# Shapes: N completions over all processes, K reward components.


class StepClock:
    """Seconds spent in the phases of one optimizer step, on this process."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._phases: dict[str, float] = {}

    def start_step(self) -> None:
        """Forget the last step."""
        self._started, self._phases = time.perf_counter(), {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside to a phase."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.perf_counter() - before

    def read(self) -> dict[str, float]:
        """Return `time/step`, `time/train` and the phases that happened, in seconds."""
        step = time.perf_counter() - self._started
        phases = {f"time/{name}": seconds for name, seconds in self._phases.items()}
        return {**phases, "time/train": step - sum(self._phases.values()), "time/step": step}


class TimedGRPOTrainer(GRPOTrainer):
    """GRPOTrainer that measures its phases and leaves unjudgeable rows out.

    Args:
        primary: Index of the component that is judged, among the reward functions.
        clock: Where the times go.
        **kwargs: GRPOTrainer's arguments.
    """

    def __init__(self, *, primary: int, clock: StepClock, **kwargs: Any) -> None:
        self._primary = primary
        self._clock = clock
        super().__init__(**kwargs)

    def _generate(self, prompts: list[Any]) -> Any:
        with self._clock.phase("generate"):
            return super()._generate(prompts)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        with self._clock.phase("reward"):
            rewards_NK = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # A target that cannot be judged must not be trained on its form alone: the whole row is left out.
        rewards_NK[torch.isnan(rewards_NK[:, self._primary])] = torch.nan
        return rewards_NK


def to_reward_function(component: RewardComponent) -> Callable[..., list[float | None]]:
    """Return a component as TRL calls it; its `__name__` names the curve."""

    def score(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        values = [s.value for s in component.score(completions, _per_completion(columns, len(completions)))]
        infinite = [value for value in values if value is not None and not math.isfinite(value)]
        if infinite:
            raise ValueError(
                f"reward component {component.name!r} returned {infinite[0]}: a reward must be a finite number, or "
                "None where the target cannot be judged; correct the component"
            )
        return values

    score.__name__ = component.name
    return score


def _per_completion(columns: Mapping[str, Any], count: int) -> dict[str, Sequence[Any]]:
    """Keep what has one value per completion; TRL hands over its state and log functions, too."""
    return {name: values for name, values in columns.items() if isinstance(values, list) and len(values) == count}
