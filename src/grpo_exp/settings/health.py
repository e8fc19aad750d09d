"""Settings of the rules that watch a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import Fraction, Int, Settings


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
    on_critical: Literal["stop", "warn"] = "stop"
    """A critical finding (a loss that is not finite) ends the run with exit code 3, or is only told."""
    window: Annotated[Int, Field(ge=1, le=100_000)] = 10
    """Steps that a rule looks back over; a warning needs all of them."""
    dead_groups: Fraction = 0.9
    """Warn when frac_reward_zero_std is at or above this: no gradient is left."""
    truncated: Fraction = 0.5
    """Warn when the share of truncated completions is at or above this."""
    kl_probe: KlProbe = KlProbe()
    """KL from the initial policy, as a curve."""
