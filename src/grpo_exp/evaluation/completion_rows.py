"""What is kept of a completion, how much of it, and of which ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from grpo_exp.evaluation.behaviours import find_behaviours
from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.score import Score


@dataclass(frozen=True, slots=True)
class TableInfo:
    """What a table is of."""

    kind: Literal["train", "eval"]
    step: int
    """Optimizer step from 1 whose update uses the completions first; of an evaluation the steps done before it."""
    num_rows: int
    """Completions that there were, those included that are not in the table."""


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """One completion with all that it was given for."""

    prompt: str
    completion: str
    target: str | list[str]
    scores: Mapping[str, Score]
    """By component, as they were scored."""
    reward: float | None
    """Weighted sum; None where the target cannot be judged."""
    length: int
    """Tokens of the completion."""
    truncated: bool
    """Ended at the length limit and not by itself."""
    group: int
    """Number of the prompt in the batch, over all processes and rounds."""
    advantage: float | None = None
    """As the loss got it: 0 for a row that cannot be judged. None where there is no loss."""
    kept: bool | None = None
    """Whether it was trained on; False for groups that dynamic sampling replaced, None in an evaluation."""
    behaviours: Mapping[str, str] = field(default_factory=dict)
    """Snippets by behaviour."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Further columns of the data set, as JSON."""
    characters_left_out: int = 0
    """Cut out of the completion."""


def prompt_text(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return a prompt as text: the content of a single message, else each one behind its role."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0].get("content"))
    return "\n\n".join(f"[{message.get('role')}] {message.get('content')}" for message in prompt)


def completion_text(completion: Completion) -> str:
    """Return all that the policy wrote in its last turn, with the reasoning that a chat format keeps apart."""
    read = read_completion(completion)
    return read.text if read.reasoning is None else f"{read.reasoning}\n\n{read.text}"


def cut_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, or its two ends around a mark that says how many are missing."""
    missing = len(text) - limit
    if missing <= 0:
        return text
    head = limit - limit // 2
    return f"{text[:head]}[... {missing} characters left out ...]{text[len(text) - limit // 2 :]}"


def limited(row: CompletionRow, limit: int, *, keep_columns: bool = False) -> CompletionRow:
    """Cut the texts of a row to `limit` characters each.

    Further columns that are longer are left out, since half of one is no JSON, unless `keep_columns` says otherwise.
    """
    targets = [row.target] if isinstance(row.target, str) else row.target
    cut_targets = [cut_middle(target, limit) for target in targets]
    return replace(
        row,
        prompt=cut_middle(row.prompt, limit),
        completion=cut_middle(row.completion, limit),
        target=cut_targets[0] if isinstance(row.target, str) else cut_targets,
        columns={name: text for name, text in row.columns.items() if keep_columns or len(text) <= limit},
        characters_left_out=max(0, len(row.completion) - limit),
    )


def choose_groups(rewards: Mapping[int, Sequence[float | None]], count: int) -> list[int]:
    """Return the numbers of `count` groups that show how far rewards reach: by mean reward, evenly from worst to best.

    Args:
        rewards: Group -> rewards of its completions; None where one cannot be judged.
        count: How many at most.

    Returns:
        Ascending numbers, the same ones for the same rewards. Groups that cannot be judged count as the best.
    """

    def place(group: int) -> tuple[bool, float, int]:
        judged = [value for value in rewards[group] if value is not None]
        return (not judged, sum(judged) / len(judged) if judged else 0.0, group)

    ordered = sorted(rewards, key=place)
    if len(ordered) <= count:
        return sorted(ordered)
    if count <= 1:
        return sorted(ordered[:count])
    return sorted(ordered[i * (len(ordered) - 1) // (count - 1)] for i in range(count))


def held_out_rows(
    samples: Sequence[Mapping[str, Any]], *, num_samples: int, weights: Mapping[str, float], primary: str
) -> list[CompletionRow]:
    """Return the rows of a held-out evaluation.

    Args:
        samples: As `evaluate_held_out` returns them: those of one prompt behind each other.
        num_samples: Of each prompt.
        weights: Factor of each component.
        primary: The component that is judged.
    """
    known = {"prompt", "completion", "target", "num_tokens", "truncated", "components"}
    rows = []
    for place, sample in enumerate(samples):
        scores = {name: Score(one["value"], one["reason"]) for name, one in sample["components"].items()}
        rows.append(
            CompletionRow(
                prompt=prompt_text(sample["prompt"]),
                completion=sample["completion"],
                target=sample["target"],
                scores=scores,
                reward=weighted_sum(scores, weights, primary=primary),
                length=sample["num_tokens"],
                truncated=sample["truncated"],
                group=place // num_samples,
                behaviours=find_behaviours(sample["completion"]),
                columns={name: json.dumps(value) for name, value in sample.items() if name not in known},
            )
        )
    return rows


def weighted_sum(scores: Mapping[str, Score], weights: Mapping[str, float], *, primary: str) -> float | None:
    """Return the reward of a completion, None where the primary component cannot be judged."""
    if scores[primary].value is None:
        return None
    return sum(weights[name] * score.value for name, score in scores.items() if score.value is not None)


def most_telling(rows: Sequence[CompletionRow], *, max_rows: int) -> list[CompletionRow]:
    """Return rows of whole groups, at most `max_rows` of them but at least one group, in their order."""
    groups: dict[int, list[float | None]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row.reward)
    largest = max((len(rewards) for rewards in groups.values()), default=1)
    chosen = set(choose_groups(groups, max(1, max_rows // largest)))
    return [row for row in rows if row.group in chosen]
