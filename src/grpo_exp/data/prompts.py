"""Rows that a trainer can use: a prompt as messages, and a target."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_exp.settings.dataset_preparation import PLACE

#: One message of a conversation: role and content.
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt and what its completions are judged by."""

    prompt: tuple[Message, ...]
    target: str | tuple[str, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns for the reward, by name: unit tests, for example."""
    solution: str | None = None
    """A worked solution without a final form, for supervised priming; None where the data have none."""
    pass_rate: float | None = None
    """Share of right answers that some policy gave, 0 to 1; None where nobody knows."""
    difficulty: float | None = None
    """Grows with difficulty, in the data set's own unit; None where nobody knows."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a data set wants them."""
        target = self.target if isinstance(self.target, str) else list(self.target)
        return {"prompt": [dict(message) for message in self.prompt], "target": target, **self.columns}

    @property
    def id(self) -> str:
        """16 hex digits over the prompt as the model gets it, system message included."""
        return prompt_id(self.prompt)

    @property
    def question_key(self) -> str:
        """The prompt's text without system message, case and runs of blanks: what duplicates have in common."""
        return text_key("\n".join(message["content"] for message in self.prompt if message["role"] != "system"))


@dataclass(frozen=True, slots=True)
class PromptData:
    """Training and held-out rows, with what was left out on the way."""

    train: tuple[PromptRow, ...]
    evaluation: tuple[PromptRow, ...]
    dropped: Mapping[str, int] = field(default_factory=Counter)
    """Reason -> number of rows that were left out."""
    dropped_targets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Reason -> the targets themselves, for the reasons of `dropped` that are about targets nobody can judge."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Setting -> commit of the hub that its rows are of; nothing of files and folders of this machine."""

    def fingerprint(self) -> str:
        """Return 16 hex digits over all rows, in order."""
        digest = hashlib.sha256()
        for row in (*self.train, *self.evaluation):
            digest.update(json.dumps(row.to_dict(), sort_keys=True).encode())
            if (row.pass_rate, row.difficulty) != (None, None):  # decide about the order of the prompts
                digest.update(json.dumps([row.pass_rate, row.difficulty]).encode())
        return digest.hexdigest()[:16]


def mark_prefilled(data: PromptData) -> PromptData:
    """Return rows that tell the rewards that completions begin inside the reasoning; a row's own word counts more."""

    def marked(rows: tuple[PromptRow, ...]) -> tuple[PromptRow, ...]:
        return tuple(replace(row, columns={"prefilled": True, **row.columns}) for row in rows)

    return replace(data, train=marked(data.train), evaluation=marked(data.evaluation))


def difficulty_of(row: PromptRow) -> float | None:
    """Return what prompts are ordered by from easy to hard: the data's own number, else 1 minus the pass rate."""
    if row.difficulty is not None:
        return row.difficulty
    return None if row.pass_rate is None else 1 - row.pass_rate


def prompt_id(messages: Sequence[Mapping[str, str]]) -> str:
    """Return 16 hex digits over a conversation."""
    return hashlib.sha256(json.dumps([dict(m) for m in messages], sort_keys=True).encode()).hexdigest()[:16]


def text_key(text: str) -> str:
    """Return a text without case and with one blank for any run of them."""
    return " ".join(text.casefold().split())


def build_prompt(
    text_or_messages: str | Sequence[Mapping[str, Any]], system_prompt: str | None, template: str | None = None
) -> tuple[Message, ...]:
    """Return messages, with the system prompt in front unless the conversation brings one.

    Args:
        text_or_messages: The user's text, or a conversation.
        system_prompt: Text of the system message, or None.
        template: Text around the last message of the user, with `{prompt}` where it goes, or None.
    """
    if isinstance(text_or_messages, str):
        messages: list[Message] = [{"role": "user", "content": text_or_messages}]
    else:
        messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in text_or_messages]
    if template is not None:
        last = max((place for place, m in enumerate(messages) if m["role"] == "user"), default=None)
        if last is not None:
            messages[last]["content"] = template.replace(PLACE, messages[last]["content"])
    if system_prompt is not None and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": system_prompt})
    return tuple(messages)
