"""Settings of checkpoints. None of them changes what is computed, so they may change when a run goes on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import Int, NoneText, OptionalText, Settings


class CheckpointSettings(Settings):
    """When the whole state of a run is saved, and what is kept of it."""

    enabled: bool = True
    """Save checkpoints: without them a stopped run starts from the beginning."""
    every_steps: Annotated[Annotated[Int, Field(ge=1, le=1_000_000)] | None, NoneText] = 20
    """Optimizer steps between two checkpoints; null saves at a stop and at the end only. With 20, a save that takes as
    long as a step costs 5 %."""
    keep: Annotated[Int, Field(ge=1, le=1000)] = 2
    """Newest ones that are kept: the second is there in case that the first one is damaged."""
    best_metric: OptionalText = "train/reward"
    """The one with the best value of this curve is kept, too, as its mean over the last 10 steps before it; null keeps
    the newest ones only."""
    best_is: Literal["highest", "lowest"] = "highest"
    """Which value of `best_metric` is the best."""
