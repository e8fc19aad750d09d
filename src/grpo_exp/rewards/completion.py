"""The text of a completion: plain, or the last assistant turn of a list of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import DataError

Completion = str | Sequence[Mapping[str, Any]] | None
"""What a backend hands over: text, messages with `role` and `content`, or nothing."""


@dataclass(frozen=True, slots=True)
class CompletionText:
    """The text that is judged.

    Args:
        text: What the policy wrote; with `reasoning` set, only what follows the reasoning.
        reasoning: The reasoning, where the chat format keeps it in a field of its own, else None.
    """

    text: str
    reasoning: str | None = None


def read_completion(completion: Completion) -> CompletionText:
    """Return the text of a completion; an absent one is empty text.

    Raises:
        DataError: The completion is neither text nor a list of messages.
    """
    if completion is None:
        return CompletionText("")
    if isinstance(completion, str):
        return CompletionText(completion)
    if not isinstance(completion, Sequence) or isinstance(completion, bytes):
        raise DataError(
            f"a completion is a {type(completion).__name__}; a completion is text or a list of messages with "
            "'role' and 'content'; hand over the decoded text"
        )
    for message in reversed(completion):
        if not isinstance(message, Mapping):
            raise DataError(
                f"a message is a {type(message).__name__}; a message is a mapping with 'role' and 'content'; "
                "hand over the messages as the chat template produced them"
            )
        if message.get("role") == "assistant":
            return CompletionText(_content_text(message.get("content")), message.get("reasoning_content") or None)
    return CompletionText("")


def _content_text(content: Any) -> str:
    """Join the text parts of a message's content; other parts (images) say nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    raise DataError(
        f"the content of a message is a {type(content).__name__}; it is text, a list of parts, or null; "
        "hand over the messages as the chat template produced them"
    )
