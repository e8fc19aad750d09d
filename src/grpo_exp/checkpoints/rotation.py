"""Which checkpoints are kept: the newest ones, and the best one by a metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from grpo_exp.checkpoints.store import Checkpoint
from grpo_exp.settings.checkpoint import CheckpointSettings


def surplus(checkpoints: Sequence[Checkpoint], settings: CheckpointSettings) -> list[int]:
    """Return the steps of those that are not kept.

    Args:
        checkpoints: All that are complete and belong to the run, the newest first.
        settings: How many to keep, and which metric decides.
    """
    best = None if settings.best_metric is None else best_of(checkpoints, settings.best_metric, settings.best_is)
    return [checkpoint.step for checkpoint in checkpoints[settings.keep :] if checkpoint is not best]


def best_of(checkpoints: Sequence[Checkpoint], metric: str, best_is: Literal["highest", "lowest"]) -> Checkpoint | None:
    """Return the one with the best value of a metric, the newer of two equal ones; None where none has a value."""
    valued = [
        (checkpoint.manifest.facts["best"]["value"], checkpoint)
        for checkpoint in checkpoints
        if checkpoint.manifest.facts.get("best", {}).get("metric") == metric
    ]
    if not valued:
        return None
    sign = 1 if best_is == "highest" else -1
    return max(valued, key=lambda pair: (sign * pair[0], pair[1].step))[1]
