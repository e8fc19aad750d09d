"""Notes on the data: what was left out, and settings of the data set that do nothing here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from grpo_exp.data.prompts import PromptData
from grpo_exp.settings.base import Settings
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.dataset import TableDataset
from grpo_exp.settings.run import RunSettings

#: Settings of a curriculum that only one order heeds.
_ONLY_OF = {"stages": "easy_to_hard", "exploration": "online", "memory": "online"}
#: Kind -> settings of paths, each with that of the commit.
_PATHS_AND_REVISIONS = {
    "countdown": (("path", "revision"),),
    "hub": (("path", "revision"), ("eval_path", "eval_revision")),
}


def dataset_notes(settings: RunSettings, data: PromptData) -> list[str]:
    """Return one line for each."""
    return [
        *_rate_notes(settings),
        *_curriculum_notes(settings, data),
        *_revision_notes(settings),
        *_left_out(data),
    ]


def _rate_notes(settings: RunSettings) -> list[str]:
    dataset, rates = settings.dataset, settings.dataset.pass_rates
    has_rates = rates.path is not None or (isinstance(dataset, TableDataset) and dataset.pass_rate_column is not None)
    is_used = rates.min_rate > 0 or rates.max_rate < 1 or rates.unknown == "drop"
    if rates.path is not None and not is_used and dataset.curriculum.order == "shuffled":
        return [
            f"dataset.pass_rates.path={rates.path} has no effect: from min_rate=0 to max_rate=1 every prompt is kept; "
            "give dataset.pass_rates.min_rate and max_rate, such as 0.1 and 0.9, or leave it out"
        ]
    if has_rates:
        return []
    return [
        f"dataset.pass_rates.{name}={getattr(rates, name)} has no effect: no pass rates are known; give "
        "dataset.pass_rates.path=FILE, or leave it out"
        for name in ("min_rate", "max_rate", "unknown")
        if _is_changed(rates, name)
    ]


def _curriculum_notes(settings: RunSettings, data: PromptData) -> list[str]:
    curriculum = settings.dataset.curriculum
    found = [
        f"dataset.curriculum.{name}={getattr(curriculum, name):g} has no effect: dataset.curriculum.order is "
        f"{curriculum.order}, and only {order} heeds it; leave it out"
        for name, order in _ONLY_OF.items()
        if order != curriculum.order and _is_changed(curriculum, name)
    ]
    seen = settings.trainer.max_steps * solve_batch(settings).prompts_per_step
    if curriculum.order == "easy_to_hard" and seen < len(data.train):
        found.append(
            f"dataset.curriculum.order=easy_to_hard: the run takes {seen} prompts, the easiest "
            f"{seen / len(data.train):.0%} of {len(data.train)}; to get to the hard ones raise trainer.max_steps, or "
            f"lower dataset.train_size to {seen}"
        )
    return found


def _revision_notes(settings: RunSettings) -> list[str]:
    """Tell of commits that mean nothing to a local copy."""
    dataset = settings.dataset
    pairs = _PATHS_AND_REVISIONS.get(dataset.kind, ())
    return [
        f"dataset.{revision}={getattr(dataset, revision)} has no effect: dataset.{path} is a local copy, and only data "
        f"sets of the hub have revisions; dataset.{revision}=null leaves this line out"
        for path, revision in pairs
        if getattr(dataset, revision) is not None and os.path.exists(getattr(dataset, path) or "")  # noqa: PTH110
    ]


def _left_out(data: PromptData) -> list[str]:
    return [
        f"dataset: {count} rows {reason} are left out{_examples(data.dropped_targets.get(reason, ()))}"
        for reason, count in data.dropped.items()
    ]


def _examples(targets: Sequence[Any]) -> str:
    """Return the first targets, for a reader; all of them stand in the run's events."""
    if not targets:
        return ""
    shown = ", ".join(repr(target)[:60] for target in targets[:3])
    return f": {shown}{', ...' if len(targets) > 3 else ''}"


def _is_changed(settings: Settings, name: str) -> bool:
    return getattr(settings, name) != type(settings).model_fields[name].default
