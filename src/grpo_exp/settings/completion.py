"""What settings of one group add to another, once all are known."""

from __future__ import annotations

from grpo_exp.settings.reward import OverlongComponent
from grpo_exp.settings.run import RunSettings

#: Name of the component that `algorithm.overlong` adds.
OVERLONG = "overlong"


def complete(settings: RunSettings) -> RunSettings:
    """Return settings whose reward has all its components; doing it twice changes nothing."""
    if not settings.algorithm.overlong.enabled or OVERLONG in settings.reward.components:
        return settings
    components = {**settings.reward.components, OVERLONG: build_overlong(settings)}
    return settings.model_copy(update={"reward": settings.reward.model_copy(update={"components": components})})


def build_overlong(settings: RunSettings) -> OverlongComponent:
    """Return the component that `algorithm.overlong` stands for: at least the last token is punished."""
    punishment, limit = settings.algorithm.overlong, settings.trainer.max_completion_length
    return OverlongComponent(
        kind="overlong",
        weight=punishment.weight,
        max_completion_tokens=limit,
        cache_tokens=max(1, round(punishment.cache_fraction * limit)),
    )
