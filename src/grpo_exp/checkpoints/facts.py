"""What a checkpoint knows about its run, beside the tensors."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class MetricsMark(TypedDict):
    """How far `metrics.jsonl` had been written."""

    bytes: int
    lines: int


class BestValue(TypedDict):
    """What is compared when the best checkpoint is kept."""

    metric: str
    value: float
    """Mean over the latest steps that measured it."""


class CheckpointFacts(TypedDict):
    """The `facts` of `complete.json`."""

    settings_hash: str
    """Over the settings that decide what is computed."""
    seed: int
    dataset_fingerprint: str
    """Of the rows that were trained and evaluated on."""
    base_weights: NotRequired[str]
    """Of the files that the model was read from; absent where it is in no folder."""
    base_texts: NotRequired[dict[str, str]]
    """Of the files that say how prompts are written and read, by the setting that names them."""
    metrics: MetricsMark
    evaluation: dict[str, dict[str, Any]]
    """Held-out results so far, as in `result.json`."""
    best: NotRequired[BestValue]
    """Absent where the metric has not been measured."""
