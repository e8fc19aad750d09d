"""Settings of what is watched in a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grpo_exp.settings.base import Int, Settings
from grpo_exp.settings.health_rules import HealthRules


class KlProbe(Settings):
    """How far the policy has moved, measured on completions of the initial one: no reference model is needed."""

    enabled: bool = True
    """Log `train/kl_from_start`, whatever `algorithm.beta` and `health.enabled` are."""
    completions: Annotated[Int, Field(ge=1, le=4096)] = 16
    """Completions of the first batch that are kept, over all processes; rounded up to as many on each."""
    every_steps: Annotated[Int, Field(ge=1, le=100_000)] = 10
    """Optimizer steps between two measurements; the last step is measured, too."""


class HealthSettings(Settings):
    """Which findings are looked for, and what they lead to."""

    enabled: bool = True
    """Look at the curves while training."""
    again_after_steps: Annotated[Int, Field(ge=1, le=1_000_000)] = 100
    """A finding is told once; it is told again when it comes back after this many optimizer steps without it.
    Judgement: long enough that a curve which wavers around a threshold is not told twice."""
    rules: HealthRules = HealthRules()
    """Action, thresholds and windows of each rule."""
    kl_probe: KlProbe = KlProbe()
    """KL from the initial policy, as a curve."""
