"""Held-out accuracy: sampled at the training temperature, and greedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_exp.data.prompts import PromptRow
from grpo_exp.evaluation.behaviours import behaviour_rates
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.engine import score_components
from grpo_exp.rewards.score import Score
from grpo_exp.statistics import clustered_interval, wilson_interval


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer; `truncated` where it ended at the length limit and not by itself."""

    text: str
    num_tokens: int
    truncated: bool


class Generate(Protocol):
    """Samples `num_samples` completions of each prompt, or the single most likely one with `greedy`."""

    def __call__(self, prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
        """Return the completions of each prompt, in the order of the prompts."""
        ...


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """Means over held-out prompts, and the rows they come from."""

    summary: dict[str, Any]
    samples: list[dict[str, Any]]


def evaluate_held_out(
    rows: Sequence[PromptRow],
    generate: Generate,
    components: Sequence[RewardComponent],
    *,
    primary: str,
    num_samples: int,
) -> HeldOutResult:
    """Sample, score and summarise.

    Args:
        rows: Prompts that were not trained on.
        generate: Samples completions.
        components: The reward's components.
        primary: Name of the component whose mean is the accuracy.
        num_samples: Samples per prompt, 1 or more.

    Returns:
        Accuracy in [0, 1] with its 95 % interval, greedy accuracy likewise, a mean for each component, lengths
        in tokens, shares of completions with each behaviour, and counts of the reasons that the primary component gave.
    """
    prompts = [[dict(message) for message in row.prompt] for row in rows]
    sampled = generate(prompts, num_samples)
    greedy = generate(prompts, 1, greedy=True)
    scores = score_groups(rows, sampled, components)
    judged = next(component for component in components if component.name == primary)
    greedy_values = [s.value for s in score_groups(rows, greedy, [judged])[primary] if s.value is not None]
    summary = {
        "num_prompts": len(rows),
        "num_samples": num_samples,
        **_accuracy(scores[primary], num_samples),
        "greedy_accuracy": _mean(greedy_values),
        "greedy_accuracy_interval": wilson_interval(round(sum(greedy_values)), len(greedy_values)),
        "rewards": {name: _mean([s.value for s in values if s.value is not None]) for name, values in scores.items()},
        "reasons": dict(Counter(score.reason for score in scores[primary])),
        "behaviours": behaviour_rates([completion.text for group in sampled for completion in group]),
        **_lengths([completion for group in sampled for completion in group]),
    }
    return HeldOutResult(summary, _samples(rows, sampled, scores))


def score_groups(
    rows: Sequence[PromptRow], groups: Sequence[Sequence[Completion]], components: Sequence[RewardComponent]
) -> dict[str, list[Score]]:
    """Return the scores of each component, those of one prompt behind each other.

    Args:
        rows: The prompts.
        groups: Completions of each.
        components: What judges.
    """
    completions = [completion.text for group in groups for completion in group]
    plain = [row.to_dict() for row, group in zip(rows, groups, strict=True) for _ in group]
    columns = {
        "prompts": [row["prompt"] for row in plain],
        **{name: [row[name] for row in plain] for name in plain[0] if name != "prompt"},
        "num_tokens": [completion.num_tokens for group in groups for completion in group],
    }
    results = score_components(components, completions, columns)
    return {name: result.scores for name, result in results.items()}


def _accuracy(scores: Sequence[Score], num_samples: int) -> dict[str, Any]:
    """Mean of the prompts' means; prompts are the independent units, not samples."""
    groups = [scores[start : start + num_samples] for start in range(0, len(scores), num_samples)]
    values = [[s.value for s in group if s.value is not None] for group in groups]
    means = [sum(group) / len(group) for group in values if group]
    return {"accuracy": _mean(means), "accuracy_interval": clustered_interval(means)}


def _lengths(completions: Sequence[Completion]) -> dict[str, float | None]:
    return {
        "completion_length": _mean([float(c.num_tokens) for c in completions]),
        "truncated_fraction": _mean([float(c.truncated) for c in completions]),
    }


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None of nothing: a number that does not exist is not 0."""
    return sum(values) / len(values) if values else None


def _samples(
    rows: Sequence[PromptRow], groups: Sequence[Sequence[Completion]], scores: dict[str, list[Score]]
) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    for row, group in zip(rows, groups, strict=True):
        for completion in group:
            place = len(samples)
            components = {name: {"value": s[place].value, "reason": s[place].reason} for name, s in scores.items()}
            samples.append(
                {**row.to_dict(), "completion": completion.text, "num_tokens": completion.num_tokens,
                 "truncated": completion.truncated, "components": components}
            )  # fmt: skip
    return samples
