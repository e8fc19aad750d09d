"""All components of one batch at once, and their sum."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from grpo_exp.rewards.columns import Columns
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score


@dataclass(frozen=True, slots=True)
class ComponentResult:
    """What one component made of a batch.

    Args:
        scores: One per completion, in order.
        seconds: Wall time, waiting for others included.
    """

    scores: list[Score]
    seconds: float


def score_components(
    components: Sequence[RewardComponent], completions: Sequence[Completion], columns: Columns
) -> dict[str, ComponentResult]:
    """Score a batch with all components at the same time, sync and async ones alike.

    Args:
        components: Their names differ.
        completions: Texts or lists of messages.
        columns: As for `RewardComponent.score`.

    Returns:
        The results by name, in the order of the components.

    Raises:
        Exception: What the first component raised that did; those that had started have ended by then.
    """

    def run(component: RewardComponent) -> ComponentResult:
        started = time.perf_counter()
        scores = component.score(completions, columns)
        return ComponentResult(scores, time.perf_counter() - started)

    if len(components) == 1:
        return {components[0].name: run(components[0])}
    with ThreadPoolExecutor(len(components)) as threads:
        results = list(threads.map(run, components))
    return {component.name: result for component, result in zip(components, results, strict=True)}


def total_rewards(
    weights: Mapping[str, float], scores: Mapping[str, Sequence[Score]], *, primary: str
) -> list[float | None]:
    """Return the weighted sum of each completion, None where the primary component cannot be judged.

    Args:
        weights: Factor of each component.
        scores: Scores of each component, as many of one as of the other. A component other than the primary that has
            no value adds nothing.
        primary: Name of the component that is judged.
    """
    totals: list[float | None] = []
    for place, judged in enumerate(scores[primary]):
        values = {name: component[place].value for name, component in scores.items()}
        total = sum(weights[name] * value for name, value in values.items() if value is not None)
        totals.append(None if judged.value is None else total)
    return totals
