"""pass@k, maj@k and mean@k of scored samples, with intervals over prompts, in all and by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpo_exp.evaluation.votes import can_vote, vote_of
from grpo_exp.settings.reward import Component
from grpo_exp.statistics.at_k import maj_at_k, pass_at_k
from grpo_exp.statistics.bootstrap import prompt_bootstrap

#: A sample of this value or more is right.
_RIGHT = 1.0


@dataclass(frozen=True, slots=True)
class PromptSamples:
    """The samples of one prompt."""

    values: tuple[float, ...]
    """Of the primary component."""
    votes: tuple[str | None, ...] | None
    """Answers; None where the component judges something that cannot be counted."""
    lengths: tuple[int, ...]
    """Tokens."""
    truncated: tuple[bool, ...]
    columns: Mapping[str, Any]

    @property
    def mean(self) -> float:
        """Mean value: for 0/1 rewards the share of right samples."""
        return float(np.mean(self.values))

    def pass_at(self, k: int) -> float:
        """Return the probability that one or more of k samples are right."""
        return pass_at_k(len(self.values), sum(value >= _RIGHT for value in self.values), k)

    def maj_at(self, k: int) -> float:
        """Return the probability that the most frequent of k answers is right."""
        assert self.votes is not None
        wrong: Counter[str] = Counter()
        num_right = num_silent = 0
        for value, vote in zip(self.values, self.votes, strict=True):
            if value >= _RIGHT:
                num_right += 1
            elif vote is None:
                num_silent += 1
            else:
                wrong[vote] += 1
        return maj_at_k(num_right, list(wrong.values()), num_silent, k)


def group_samples(
    samples: Sequence[Mapping[str, Any]], *, num_samples: int, primary: str, component: Component
) -> list[PromptSamples]:
    """Return the samples prompt by prompt; a prompt with a sample that cannot be judged is left out.

    Args:
        samples: As `evaluate_held_out` returns them: those of one prompt behind each other.
        num_samples: Of each prompt.
        primary: Name of the component that is judged.
        component: Its settings.
    """
    found = []
    known = {"prompt", "completion", "target", "num_tokens", "truncated", "components"}
    for start in range(0, len(samples), num_samples):
        rows = samples[start : start + num_samples]
        values = [row["components"][primary]["value"] for row in rows]
        if any(value is None for value in values):
            continue
        prefilled = bool(rows[0].get("prefilled", False))
        votes = [vote_of(row["completion"], component, prefilled=prefilled) for row in rows]
        found.append(
            PromptSamples(
                tuple(map(float, values)),
                tuple(votes) if can_vote(component) else None,
                tuple(row["num_tokens"] for row in rows),
                tuple(row["truncated"] for row in rows),
                {name: value for name, value in rows[0].items() if name not in known},
            )
        )
    return found


def summarise(
    prompts: Sequence[PromptSamples], *, ks: Sequence[int], group_by: Sequence[str] = (), seed: int = 0
) -> dict[str, Any]:
    """Return metrics, each `{"value", "interval"}`, lengths and truncation, and the same for each group.

    Args:
        prompts: At least one.
        ks: Values of k, each at most the number of samples.
        group_by: Columns by whose values prompts are also told apart.
        seed: Of the bootstrap.
    """
    num_samples = len(prompts[0].values)
    per_prompt = {f"mean_at_{num_samples}": [prompt.mean for prompt in prompts]}
    per_prompt |= {f"pass_at_{k}": [prompt.pass_at(k) for prompt in prompts] for k in ks}
    if prompts[0].votes is not None:
        per_prompt |= {f"maj_at_{k}": [prompt.maj_at(k) for prompt in prompts] for k in ks if k > 1}
    metrics = {name: _with_interval(values, seed) for name, values in per_prompt.items()}
    summary: dict[str, Any] = {"num_prompts": len(prompts), "metrics": metrics, **_lengths(prompts)}
    if group_by:
        summary["groups"] = {name: _groups(prompts, name, ks=ks, seed=seed) for name in group_by}
    return summary


def _with_interval(values: Sequence[float], seed: int) -> dict[str, Any]:
    interval = prompt_bootstrap(values, seed=seed)
    return {"value": float(np.mean(values)), "interval": None if interval is None else list(interval)}


def _groups(prompts: Sequence[PromptSamples], name: str, *, ks: Sequence[int], seed: int) -> dict[str, Any]:
    members: dict[str, list[PromptSamples]] = {}
    for prompt in prompts:
        members.setdefault(str(prompt.columns[name]), []).append(prompt)
    return {value: summarise(members[value], ks=ks, seed=seed) for value in sorted(members, key=_natural)}


def _natural(text: str) -> tuple[int, float, str]:
    """Sort numbers as numbers and in front of words."""
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def _lengths(prompts: Sequence[PromptSamples]) -> dict[str, Any]:
    lengths = np.concatenate([prompt.lengths for prompt in prompts])
    truncated = np.concatenate([prompt.truncated for prompt in prompts])
    right = np.concatenate([prompt.values for prompt in prompts]) >= _RIGHT
    of = {"right": lengths[right], "wrong": lengths[~right]}
    return {
        "completion_length": {
            "mean": float(lengths.mean()),
            **{f"quantile_{q}": float(np.quantile(lengths, q / 100)) for q in (10, 50, 90)},
            "max": int(lengths.max()),
            **{f"mean_{name}": float(found.mean()) for name, found in of.items() if len(found)},
        },
        "truncated_fraction": float(truncated.mean()),
    }


def change(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> dict[str, Any]:
    """Return the mean difference over the same prompts, with its interval over prompts.

    Args:
        before: Mean of each prompt.
        after: The same prompts, in the same order.
        seed: Of the bootstrap.
    """
    return _with_interval(np.subtract(after, before).tolist(), seed)
