"""Worked examples for supervised fine-tuning, made of rows: a prompt and the completion that it should get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grpo_exp.data.prompts import Message, PromptData, PromptRow
from grpo_exp.errors import DataError
from grpo_exp.settings.sft import SOLUTION, TARGET, SftSettings


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and what the policy should write."""

    prompt: tuple[Message, ...]
    completion: str


def build_examples(data: PromptData, settings: SftSettings) -> list[Example]:
    """Return the examples that the training rows make, in the order of the rows.

    Raises:
        DataError: No row has what the template wants.
    """
    found = list(_examples(data.train, settings))
    if not found:
        raise DataError(
            f"sft.completion_template={settings.completion_template!r}: none of the {len(data.train)} training rows "
            f"has {_lacking(data, settings)}"
        )
    return found[: settings.num_examples]


def _lacking(data: PromptData, settings: SftSettings) -> str:
    """Return what no row has of what the template wants, and the fix."""
    if settings.needs_solution and all(row.solution is None for row in data.train):
        return (
            "a worked solution; name its column with dataset.solution_column=COLUMN, or write a template with "
            f"{TARGET} alone"
        )
    if TARGET in settings.completion_template and not any(row.target for row in data.train):
        return f"an answer; write a template with {SOLUTION} alone"
    return "both a worked solution and an answer; write a template with one of them alone"


def _examples(rows: tuple[PromptRow, ...], settings: SftSettings) -> Iterator[Example]:
    for row in rows:
        target = row.target if isinstance(row.target, str) else row.target[0]
        lacks_solution = settings.needs_solution and row.solution is None
        if lacks_solution or (TARGET in settings.completion_template and not target):
            continue
        # Both at once: a solution may hold the text {target}.
        parts = settings.completion_template.split(SOLUTION)
        yield Example(row.prompt, (row.solution or "").join(part.replace(TARGET, target) for part in parts))
