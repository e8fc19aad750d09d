"""Settings of the reward: named, weighted components."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Settings, Text


class MathComponent(Settings):
    r"""Correctness of the last `\boxed{}` after the last `</think>`."""

    kind: Literal["math"]
    weight: Float = 1.0
    """Factor of this component in the reward."""


class ThinkFormatComponent(Settings):
    """One non-empty `<think>` block, then a non-empty answer."""

    kind: Literal["think_format"]
    weight: Float = 0.1
    """Factor of this component in the reward; small, so that form never pays more than substance."""
    strict_newlines: bool = False
    """Ask for line breaks around the reasoning, as DeepSeek-R1's template writes them."""


Component = Annotated[MathComponent | ThinkFormatComponent, Field(discriminator="kind")]


class RewardSettings(Settings):
    """The reward: a weighted sum of components, each logged as a curve of its own."""

    components: dict[Text, Component]
    """Components by name; the name is the name of the curve."""
    primary: Text = "correctness"
    """The component that is judged: accuracy, dynamic sampling and health use it."""

    @model_validator(mode="after")
    def _check(self) -> RewardSettings:
        if not self.components:
            raise ValueError("a reward needs at least one component; choose one, for example reward=math")
        if self.primary not in self.components:
            raise ValueError(
                f"primary: {self.primary!r} is not a component; the components are {sorted(self.components)}"
            )
        if all(component.weight == 0 for component in self.components.values()):
            raise ValueError("every component has weight 0, so no completion is better than another; raise one")
        return self
