"""Components that judge the form of a completion and know no target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from grpo_exp.settings.base import Float, Text
from grpo_exp.settings.reward_schedule import ComponentSettings


class ThinkFormatComponent(ComponentSettings):
    """One non-empty `<think>` block, then a non-empty answer."""

    kind: Literal["think_format"]
    weight: Float = 0.1
    """Factor of this component in the reward; small, so that form never pays more than substance."""
    strict_newlines: bool = False
    """Ask for line breaks around the reasoning, as DeepSeek-R1's template writes them."""


class AnswerTagComponent(ComponentSettings):
    """A well-formed reasoning block, then exactly one non-empty `<answer>` block and nothing else.

    The template of DeepSeek-R1-Zero (arXiv:2501.12948, table 1).
    """

    kind: Literal["answer_tag"]
    weight: Float = 0.1
    """Factor of this component in the reward; small, so that form never pays more than substance."""
    require_reasoning: bool = True
    """Ask for one non-empty `<think>` block in front; false judges the `<answer>` block alone."""


class TagCountComponent(ComponentSettings):
    """The share of the tags that appear exactly once: a first step towards a form, with partial credit."""

    kind: Literal["tag_count"]
    weight: Float = 0.1
    """Factor of this component in the reward; small, since tags without content pay in full."""
    tags: Annotated[tuple[Text, ...], Field(min_length=1, max_length=32)] = (
        "<think>", "</think>", "<answer>", "</answer>",
    )  # fmt: skip
    """Tags that are counted, exactly as written. An opening `<think>` that the prompt ends with counts as there."""

    @field_validator("tags")
    @classmethod
    def _are_tags(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(tag.strip() for tag in value):
            raise ValueError("one of the tags is empty; every text holds it everywhere; leave it out")
        if len(set(value)) != len(value):
            raise ValueError(f"{list(value)} names a tag twice, which would count it twice; name each once")
        return value
