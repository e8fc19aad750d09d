"""Schedules of a component's weight, and what every component has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Int, Settings

Factor = Annotated[Float, Field(ge=0, le=1000)]
Step = Annotated[Int, Field(ge=0, le=1_000_000)]


class ConstantSchedule(Settings):
    """The weight stays as it is."""

    kind: Literal["constant"] = "constant"

    def factor_at(self, step: int) -> float:
        """Return 1 at every step."""
        return 1.0


class LinearSchedule(Settings):
    """The factor moves on a straight line, and stays where it arrives."""

    kind: Literal["linear"]
    start_factor: Factor = 1.0
    """Factor of the weight up to `start_step`; 0 and up."""
    end_factor: Factor = 0.0
    """Factor of the weight from `end_step` on; 0 and up."""
    start_step: Step = 0
    """Optimizer steps before the factor starts to move."""
    end_step: Annotated[Int, Field(ge=1, le=1_000_000)]
    """Optimizer steps after which it has arrived; above `start_step`."""

    @model_validator(mode="after")
    def _check(self) -> LinearSchedule:
        if self.end_step <= self.start_step:
            raise ValueError(
                f"end_step: {self.end_step} is not above start_step={self.start_step}; "
                f"use end_step={self.start_step + 1} or more"
            )
        if self.start_factor == self.end_factor:
            raise ValueError(f"start_factor: equals end_factor={self.end_factor}, so nothing moves; use kind=constant")
        return self

    def factor_at(self, step: int) -> float:
        """Return the factor after `step` optimizer steps."""
        progress = (step - self.start_step) / (self.end_step - self.start_step)
        return self.start_factor + (self.end_factor - self.start_factor) * min(1.0, max(0.0, progress))


class StepSchedule(Settings):
    """The factor jumps."""

    kind: Literal["step"]
    at_steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    """Optimizer steps at which the factor changes, ascending; it is 1 before the first."""
    factors: Annotated[tuple[Factor, ...], Field(min_length=1)]
    """Factor of the weight from the step in the same place on; 0 and up."""

    @model_validator(mode="after")
    def _check(self) -> StepSchedule:
        if len(self.at_steps) != len(self.factors):
            raise ValueError(
                f"at_steps, factors: {len(self.at_steps)} steps and {len(self.factors)} factors; each step has one "
                "factor; give as many of one as of the other"
            )
        if list(self.at_steps) != sorted(set(self.at_steps)):
            raise ValueError(f"at_steps: {list(self.at_steps)} do not ascend; name each step once, in order")
        return self

    def factor_at(self, step: int) -> float:
        """Return the factor after `step` optimizer steps."""
        factor = 1.0
        for start, value in zip(self.at_steps, self.factors, strict=True):
            if step >= start:
                factor = value
        return factor


Schedule = Annotated[ConstantSchedule | LinearSchedule | StepSchedule, Field(discriminator="kind")]


class ComponentSettings(Settings):
    """What every component of a reward has."""

    weight: Float = 1.0
    """Factor of this component in the reward; negative turns a value into a punishment."""
    schedule: Schedule = ConstantSchedule()
    """How the weight changes over training: a factor of it, by optimizer step."""

    def weight_at(self, step: int) -> float:
        """Return the weight after `step` optimizer steps, 0 and up."""
        return self.weight * self.schedule.factor_at(step)
