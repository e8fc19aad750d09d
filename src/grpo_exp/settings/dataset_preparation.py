"""Settings of how prompts are prepared: the same for every data set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from grpo_exp.settings.base import (
    FilledText,
    Fraction,
    FractionBelowOne,
    Int,
    NoneText,
    OptionalPath,
    OptionalText,
    PathText,
    Settings,
)

#: Where the prompt goes in a template.
PLACE = "{prompt}"

#: Tokens of a prompt; also the type of what other groups derive from it.
PromptLength = Annotated[Int, Field(ge=1, le=1_048_576)]


class PassRates(Settings):
    """The share of right answers that some policy gave to each prompt: prompts outside the bounds are left out."""

    path: OptionalPath = None
    """JSON lines, `{"id": ..., "pass_rate": 0.25}` or `{"prompt": ..., "pass_rate": 0.25}`; null reads none."""
    min_rate: Fraction = 0.0
    """Prompts below it are left out as too hard; 0 to 1, both ends included."""
    max_rate: Fraction = 1.0
    """Prompts above it are left out as too easy; 0 to 1, both ends included."""
    unknown: Literal["keep", "drop"] = "keep"
    """What happens to prompts whose rate is not known."""

    @model_validator(mode="after")
    def _check(self) -> PassRates:
        if self.min_rate > self.max_rate:
            raise ValueError(
                f"min_rate: {self.min_rate:g} is above max_rate={self.max_rate:g}, so no prompt is between them; lower "
                "it, or raise max_rate"
            )
        return self


class Curriculum(Settings):
    """In which order prompts are trained on."""

    order: Literal["shuffled", "easy_to_hard", "online"] = "shuffled"
    """`shuffled`: each epoch in a random order. `easy_to_hard`: each epoch in stages of growing difficulty. `online`:
    drawn anew for each batch, most often the prompts that the policy answers right about half of the time."""
    stages: Annotated[Int, Field(ge=2, le=1000)] = 4
    """Of `easy_to_hard`: parts of equal size, each in a random order."""
    exploration: Fraction = 0.2
    """Of `online`: share of a batch that is drawn without regard to success, so that no prompt is given up."""
    memory: FractionBelowOne = 0.5
    """Of `online`: how much of the old estimate of a prompt's success stays when it is seen again; 0 takes the newest
    group alone."""


class PreparedDataset(Settings):
    """What every data set has."""

    name: FilledText = "data"
    """Its word in the default `name` of a run."""
    system_prompt: OptionalText = None
    """System message before each prompt; null is none."""
    prompt_template: OptionalText = None
    """Text around the last message of the user, with `{prompt}` where it goes; null leaves it as it is."""
    max_prompt_length: Annotated[PromptLength | None, NoneText] = None
    """Prompts with more tokens, chat template included, are left out and counted; null leaves none out."""
    exclude: tuple[PathText, ...] = ()
    """JSON lines with prompts that must not be trained on, such as benchmarks: a column `prompt`, `question` or
    `problem`. Compared without regard to case, blanks and the system prompt."""
    pass_rates: PassRates = PassRates()
    """Filter by difficulty."""
    curriculum: Curriculum = Curriculum()
    """Order of the prompts."""

    @field_validator("prompt_template")
    @classmethod
    def _has_a_place(cls, value: str | None) -> str | None:
        if value is not None and value.count(PLACE) != 1:
            raise ValueError(
                f"holds {PLACE} {value.count(PLACE)} times and it says where the prompt goes; write it exactly once"
            )
        return value
