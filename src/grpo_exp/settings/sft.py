"""Settings of supervised fine-tuning on worked examples, before GRPO."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from grpo_exp.settings.base import FilledText, Int, NoneText, Settings
from grpo_exp.settings.dataset_preparation import PromptLength

#: What a completion is made of.
SOLUTION, TARGET = "{solution}", "{target}"


class SftSettings(Settings):
    """What a policy is primed on: completions in the form that the reward asks for."""

    num_examples: Annotated[Annotated[Int, Field(ge=1, le=10_000_000)] | None, NoneText] = 400
    """The first training rows that can be made into an example; null is all."""
    completion_template: FilledText = f"<think>\n{SOLUTION}\n</think>\n\n\\boxed{{{TARGET}}}"
    r"""What the policy learns to write: `{solution}` is the worked solution of a row, `{target}` its answer. A prefill
    that the model's prompts end with (`<think>`) is left out at the start."""
    max_length: Annotated[PromptLength | None, NoneText] = 2048
    """Examples with more tokens, prompt included, are left out and counted; null leaves none out."""

    @field_validator("completion_template")
    @classmethod
    def _is_made_of_something(cls, value: str) -> str:
        if SOLUTION not in value and TARGET not in value:
            raise ValueError(
                f"holds neither {SOLUTION} nor {TARGET}, so every prompt would get the same answer; write one of them"
            )
        return value

    @property
    def needs_solution(self) -> bool:
        """Whether a row without a worked solution makes no example."""
        return SOLUTION in self.completion_template
