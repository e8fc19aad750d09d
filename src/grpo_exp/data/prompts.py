"""Rows that a trainer can use: a prompt as messages, and a target."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: One message of a conversation: role and content.
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt and what its completions are judged by."""

    prompt: tuple[Message, ...]
    target: str | tuple[str, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns for the reward, by name: unit tests, for example."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a data set wants them."""
        target = self.target if isinstance(self.target, str) else list(self.target)
        return {"prompt": [dict(message) for message in self.prompt], "target": target, **self.columns}


@dataclass(frozen=True, slots=True)
class PromptData:
    """Training and held-out rows, with what was left out on the way."""

    train: tuple[PromptRow, ...]
    evaluation: tuple[PromptRow, ...]
    dropped: Mapping[str, int] = field(default_factory=Counter)
    """Reason -> number of rows that were left out."""
    dropped_targets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Reason -> the targets themselves, for the reasons of `dropped` that are about targets nobody can judge."""

    def fingerprint(self) -> str:
        """Return 16 hex digits over all rows, in order."""
        digest = hashlib.sha256()
        for row in (*self.train, *self.evaluation):
            digest.update(json.dumps(row.to_dict(), sort_keys=True).encode())
        return digest.hexdigest()[:16]


def mark_prefilled(data: PromptData) -> PromptData:
    """Return rows that tell the rewards that completions begin inside the reasoning; a row's own word counts more."""

    def marked(rows: tuple[PromptRow, ...]) -> tuple[PromptRow, ...]:
        return tuple(replace(row, columns={"prefilled": True, **row.columns}) for row in rows)

    return replace(data, train=marked(data.train), evaluation=marked(data.evaluation))


def build_prompt(text_or_messages: str | Sequence[Mapping[str, Any]], system_prompt: str | None) -> tuple[Message, ...]:
    """Return messages, with the system prompt in front unless the conversation brings one.

    Args:
        text_or_messages: The user's text, or a conversation.
        system_prompt: Text of the system message, or None.
    """
    if isinstance(text_or_messages, str):
        messages: list[Message] = [{"role": "user", "content": text_or_messages}]
    else:
        messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in text_or_messages]
    if system_prompt is not None and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": system_prompt})
    return tuple(messages)
