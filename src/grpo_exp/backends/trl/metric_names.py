"""From the keys of TRL's log to our metric names: one table, nothing else renames a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: TRL's key -> ours. The length keys get the field's word; the rest keeps TRL's name under `train/`.
_RENAMED = {
    "completions/mean_length": "completion_length/mean",
    "completions/min_length": "completion_length/min",
    "completions/max_length": "completion_length/max",
    "completions/mean_terminated_length": "completion_length/terminated_mean",
    "completions/clipped_ratio": "completion_length/truncated_fraction",
}

#: Not logged: our own clock measures steps, and the rest repeats another curve.
_LEFT_OUT = frozenset(
    {
        "step_time",
        "completions/min_terminated_length",
        "completions/max_terminated_length",
        "total_flos",
        "train_loss",
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
    }
)


def to_metrics(logs: Mapping[str, Any]) -> dict[str, float]:
    """Translate one `on_log` of a training step.

    Args:
        logs: What TRL hands to `on_log`; values are numbers, or None where no completion had one.

    Returns:
        Metrics by name. A value that does not exist (None, or NaN of a mean over nothing) is absent, but a
        loss or gradient norm that is not finite stays: it must be seen.
    """
    metrics: dict[str, float] = {}
    for key, value in logs.items():
        if key in _LEFT_OUT or isinstance(value, str) or value is None:
            continue
        if key == "completions/mean_terminated_length" and value == 0:  # none ended: TRL's 0 stands for nothing
            continue
        number = float(value)
        if math.isnan(number) and key not in {"loss", "grad_norm"}:
            continue
        metrics[f"train/{_RENAMED.get(key, key)}"] = number
    return metrics
