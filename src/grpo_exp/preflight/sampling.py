"""Faults and notes of dynamic sampling and of the overlong punishment: what they need, and when they do nothing."""

from __future__ import annotations

from grpo_exp.settings.completion import OVERLONG, build_overlong
from grpo_exp.settings.dataset import TableDataset
from grpo_exp.settings.dynamic_sampling import DynamicSampling
from grpo_exp.settings.overlong import OverlongPunishment
from grpo_exp.settings.run import RunSettings

#: Columns from which TRL takes images; completions to images cannot be moved to another place of the batch.
_IMAGE_COLUMNS = ("image", "images")


def sampling_faults(settings: RunSettings) -> list[str]:
    """Return why groups cannot be replaced in this run."""
    sampling, faults = settings.algorithm.dynamic_sampling, []
    names = list(settings.reward.components)
    if sampling.metric is not None and sampling.metric not in names:
        faults.append(
            f"algorithm.dynamic_sampling.metric={sampling.metric}: is no component of the reward; use one of "
            f"{', '.join(names)}, or null for reward.primary ({settings.reward.primary})"
        )
    columns = settings.dataset.extra_columns if isinstance(settings.dataset, TableDataset) else ()
    images = [name for name in _IMAGE_COLUMNS if name in columns]
    if sampling.enabled and images:
        faults.append(
            f"algorithm.dynamic_sampling.enabled=true: the column {images[0]} holds images, and only groups of text "
            "can be replaced; use algorithm.dynamic_sampling.enabled=false, or leave the column out"
        )
    return faults


def sampling_notes(settings: RunSettings) -> list[str]:
    """Return a line for each setting that does nothing, or not what its name says."""
    return [*_dynamic_notes(settings), *_overlong_notes(settings)]


def _dynamic_notes(settings: RunSettings) -> list[str]:
    sampling = settings.algorithm.dynamic_sampling
    if not sampling.enabled:
        return [
            f"algorithm.dynamic_sampling.{name}={getattr(sampling, name)} has no effect: groups are not replaced; add "
            "algorithm.dynamic_sampling.enabled=true, or leave it out"
            for name in ("metric", "max_rounds", "on_exhausted")
            if getattr(sampling, name) != DynamicSampling.model_fields[name].default
        ]
    metric = sampling.metric or settings.reward.primary
    found = []
    if metric in settings.reward.components and settings.reward.components[metric].weight == 0:
        found.append(
            f"algorithm.dynamic_sampling.metric={metric}: groups are chosen by a component of weight 0, so they may "
            "vary in it and still give no gradient; name one that is rewarded"
        )
    if sampling.max_rounds == 1:
        found.append(
            "algorithm.dynamic_sampling.max_rounds=1: the first round is the last one, so no group is replaced; use 2 "
            "or more"
        )
    return found


def _overlong_notes(settings: RunSettings) -> list[str]:
    overlong, components = settings.algorithm.overlong, settings.reward.components
    if not overlong.enabled:
        return [
            f"algorithm.overlong.{name}={getattr(overlong, name):g} has no effect: there is no punishment; add "
            "algorithm.overlong.enabled=true, or leave it out"
            for name in ("cache_fraction", "weight")
            if getattr(overlong, name) != OverlongPunishment.model_fields[name].default
        ]
    derived = build_overlong(settings)
    if components.get(OVERLONG, derived) != derived:
        return [
            f"algorithm.overlong has no effect: the reward has a component {OVERLONG} of its own; leave one of them out"
        ]
    if overlong.weight == 0:
        return [
            "algorithm.overlong.weight=0: the punishment is logged and does not count; raise it, or leave it so for "
            "the curve alone"
        ]
    return []
