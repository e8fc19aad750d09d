"""Settings of DAPO's soft overlong punishment, from which the reward gets its component `overlong`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grpo_exp.settings.base import Float, PositiveFraction, Settings


class OverlongPunishment(Settings):
    """Reward component `overlong`: 0, and near the limit of the length down to -1 (arXiv:2503.14476, equation 13)."""

    enabled: bool = False
    """Add the component, unless the reward has one of this name already."""
    cache_fraction: PositiveFraction = 0.2
    """L_cache as a share of L_max = `trainer.max_completion_length`, above 0, at most 1; the paper: 4096 of 20480."""
    weight: Annotated[Float, Field(ge=0, le=1000)] = 1.0
    """Factor of the component in the reward, 0 to 1000; the paper adds it as it is."""
