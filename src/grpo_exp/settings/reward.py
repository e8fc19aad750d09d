"""Settings of the reward: named, weighted components, and the limits of what checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from grpo_exp.settings.base import Float, Int, NoneText, Settings, Text
from grpo_exp.settings.reward_answers import (
    CountdownComponent,
    ExactComponent,
    Gsm8kComponent,
    LetterComponent,
    MathComponent,
    NumericComponent,
    ReasoningGymComponent,
    RegexComponent,
)
from grpo_exp.settings.reward_code import CodeComponent
from grpo_exp.settings.reward_form import AnswerTagComponent, TagCountComponent, ThinkFormatComponent
from grpo_exp.settings.reward_schedule import ComponentSettings
from grpo_exp.settings.reward_text import (
    CosineLengthComponent,
    LanguageComponent,
    OverlongComponent,
    RepetitionComponent,
    TextQualityComponent,
)

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class PythonComponent(ComponentSettings):
    """Your own function, with TRL's signature: `function(prompts, completions, **columns) -> list[float | None]`.

    Plain or `async`. None is a target that cannot be judged. An exception ends the run.
    """

    kind: Literal["python"]
    function: Text
    """`module:function`, importable from where the command is started, as in `my_rewards:brevity`."""
    timeout_seconds: Annotated[Float, Field(gt=0, le=86_400)] = 60.0
    """Longest time for one batch, above 0, at most a day; over it every completion of the batch scores 0."""

    @field_validator("function")
    @classmethod
    def _is_module_and_name(cls, value: str) -> str:
        if not _FUNCTION.fullmatch(value):
            raise ValueError("is not of the form module:function; write for example my_rewards:brevity")
        return value


Component = Annotated[
    MathComponent
    | Gsm8kComponent
    | LetterComponent
    | ExactComponent
    | RegexComponent
    | NumericComponent
    | CountdownComponent
    | ReasoningGymComponent
    | ThinkFormatComponent
    | AnswerTagComponent
    | TagCountComponent
    | OverlongComponent
    | CosineLengthComponent
    | RepetitionComponent
    | LanguageComponent
    | TextQualityComponent
    | CodeComponent
    | PythonComponent,
    Field(discriminator="kind"),
]

#: Their best value is not 1, so their mean is no accuracy.
_NO_ACCURACY = (OverlongComponent, CosineLengthComponent, RepetitionComponent)


class EngineSettings(Settings):
    """Limits of the processes that check answers."""

    timeout_seconds: Annotated[Float, Field(gt=0, le=3600)] = 5.0
    """Longest work on one answer, above 0, at most an hour; the clock starts when the work starts."""
    num_workers: Annotated[Annotated[Int, Field(ge=1, le=256)] | None, NoneText] = None
    """Processes on each rank, 1 to 256; null is the machine's cores shared among its ranks, at most 8."""
    memory_gib: Annotated[Float, Field(ge=1, le=1024)] = 4.0
    """Address space of one process in GiB, 1 to 1024; an answer that wants more counts as a crash."""


class RewardSettings(Settings):
    """The reward: a weighted sum of components, each logged as a curve of its own."""

    components: dict[Text, Component]
    """Components by name; the name is the name of the curve."""
    primary: Text = "correctness"
    """The component that is judged: accuracy, dynamic sampling and health use it."""
    engine: EngineSettings = EngineSettings()
    """Limits of the processes that check answers."""

    @model_validator(mode="after")
    def _check(self) -> RewardSettings:
        if not self.components:
            raise ValueError("a reward needs at least one component; choose one, for example reward=math")
        faults = [*self._primary_faults(), *self._cosine_faults()]
        if all(component.weight == 0 for component in self.components.values()):
            faults.append("every component has weight 0, so no completion is better than another; raise one")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _primary_faults(self) -> list[str]:
        if self.primary not in self.components:
            return [f"primary: {self.primary!r} is not a component; the components are {sorted(self.components)}"]
        component = self.components[self.primary]
        if isinstance(component, _NO_ACCURACY):
            return [
                f"primary: {self.primary!r} is of kind {component.kind}, whose mean is no accuracy (1 is not its best "
                "value); name a component that judges the answer"
            ]
        return []

    def _cosine_faults(self) -> list[str]:
        cosines = {name: c for name, c in self.components.items() if isinstance(c, CosineLengthComponent)}
        return [
            f"components.{name}.judged_by: {cosine.judged_by!r} is no component that judges an answer; "
            f"name one of {sorted(n for n, c in self.components.items() if not isinstance(c, _NO_ACCURACY))}"
            for name, cosine in cosines.items()
            if isinstance(self.components.get(cosine.judged_by), (*_NO_ACCURACY, type(None)))
        ]


class ScoredReward(RewardSettings):
    """A reward that saved completions are scored under. Nothing learns from it, so any component may be the primary."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_only_one(cls, data: Any) -> Any:
        """Let the only component be the primary one, unless another is named."""
        if isinstance(data, Mapping) and "primary" not in data:
            components = data.get("components")
            if isinstance(components, Mapping) and len(components) == 1:
                return {**data, "primary": next(iter(components))}
        return data

    def _primary_faults(self) -> list[str]:
        return [] if self.primary in self.components else super()._primary_faults()
