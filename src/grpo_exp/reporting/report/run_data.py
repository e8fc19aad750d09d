"""What a report needs of one run, read from its folder: thinned curves, findings, cost, value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpo_exp.reporting import plots
from grpo_exp.reporting.plots import Curve
from grpo_exp.rundir import RunDirectory, read_events
from grpo_exp.tracking.metrics_log import MetricsRecord, last_per_step, read_metrics

#: Values of a run that are drawn; more points than this are one line all the same.
MAX_POINTS = 100
#: A curve's value at the end is its mean over this share of the steps, and over the last one at least.
LAST_SHARE = 0.1
HEALTH_KINDS = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run took; None where it was not measured."""

    completions: float | None
    """Completions that were generated for training."""
    tokens: float | None
    """Tokens of prompts and completions, as TRL counts them (`train/num_tokens`)."""
    device_hours: float | None
    """Hours of all training steps times the processes; evaluation, loading and a vLLM server are not in it."""


@dataclass(frozen=True, slots=True)
class RunData:
    """One run."""

    directory: RunDirectory
    settings: Mapping[str, Any]
    """Resolved settings, nested."""
    state: str
    """As `grpo-exp sweep status` calls it."""
    reason: str | None
    result: Mapping[str, Any] | None
    """The content of `result.json`."""
    steps: int
    """Optimizer steps that were measured."""
    curves: Mapping[str, Curve]
    """By metric, thinned to MAX_POINTS values."""
    last: Mapping[str, float]
    """By metric, the mean over the last tenth of the steps."""
    findings: Sequence[Mapping[str, Any]]
    """Health findings of all attempts, the oldest first."""
    cost: RunCost
    on_gpu: bool | None
    """Whether it ran on a GPU; None where that is not known."""
    evaluation: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Held-out results by when."""

    def value(self, metric: str) -> float | None:
        """Return what the run is judged by: a held-out result after training by its name, else a curve's end.

        A held-out result exists only where the run came to its end; a curve of a run that did not says nothing about
        where it would have ended, so it has no value either.
        """
        if "/" not in metric:
            return self.evaluation.get("after", {}).get(metric)
        return self.last.get(metric) if self.state == "completed" else None


def read_run(directory: RunDirectory, settings: Mapping[str, Any], *, state: str, reason: str | None = None) -> RunData:
    """Read a run as far as it came; one that was never started has no curves."""
    records = read_metrics(directory.metrics) if directory.metrics.is_file() else []
    curves = to_curves(records)
    steps = max((record["step"] for record in records), default=0)
    result = directory.read_result()
    return RunData(
        directory=directory,
        settings=settings,
        state=state,
        reason=reason,
        result=result,
        steps=steps,
        curves={name: thin(curve, max(steps, settings["trainer"]["max_steps"])) for name, curve in curves.items()},
        last={name: _end_of(curve, steps) for name, curve in curves.items()},
        findings=[event for event in read_events(directory) if event["kind"] in HEALTH_KINDS and "rule" in event],
        cost=_cost_of(curves, settings),
        on_gpu=_is_on_gpu(directory),
        evaluation={} if result is None else result.get("eval") or {},
    )


def to_curves(records: Sequence[MetricsRecord]) -> dict[str, Curve]:
    """Return steps and values by metric; of a step that was repeated, what was measured last.

    Records with the same names are taken together: nearly all of a run are such, and there are hundreds of thousands of
    them in a sweep.
    """
    alike: dict[tuple[str, ...], list[MetricsRecord]] = {}
    for record in records:
        alike.setdefault(tuple(record["metrics"]), []).append(record)
    parts: dict[str, list[Curve]] = {}
    for names, members in alike.items():
        steps = np.array([record["step"] for record in members])
        values = np.array([list(record["metrics"].values()) for record in members], dtype=float)
        for column, name in enumerate(names):
            parts.setdefault(name, []).append((steps, values[:, column]))
    if any(np.any(np.diff(steps) <= 0) for found in parts.values() for steps, _ in found):
        return _repeated(records)
    return {name: found[0] if len(found) == 1 else _joined(found) for name, found in parts.items()}


def _joined(parts: Sequence[Curve]) -> Curve:
    """Return the parts of a curve by step; they share no step but for what a run measures twice at its end."""
    steps = np.concatenate([steps for steps, _ in parts])
    values = np.concatenate([values for _, values in parts])
    order = np.argsort(steps, kind="stable")
    is_last = np.append(np.diff(steps[order]) > 0, True)
    return steps[order][is_last], values[order][is_last]


def _repeated(records: Sequence[MetricsRecord]) -> dict[str, Curve]:
    """Return the curves of a run that went back to an earlier step."""
    return plots.to_curves(last_per_step(records))


def thin(curve: Curve, last_step: int, *, max_points: int = MAX_POINTS) -> Curve:
    """Return a curve of at most `max_points` values: means over equal stretches of steps, at the end of each.

    Runs with as many steps get the same stretches, so that their curves can be laid over each other.
    """
    steps, values = curve
    if last_step <= max_points or len(steps) <= 2:  # held-out results stay where they were measured
        return curve
    width = -(-last_step // max_points)
    stretch = np.maximum(steps - 1, 0) // width
    found, first, counts = np.unique(stretch, return_index=True, return_counts=True)
    return np.minimum((found + 1) * width, last_step), np.add.reduceat(values, first) / counts


def _end_of(curve: Curve, last_step: int) -> float:
    steps, values = curve
    at_end = values[steps > last_step * (1 - LAST_SHARE)]
    return float(at_end.mean() if len(at_end) else values[-1])


def _cost_of(curves: Mapping[str, Curve], settings: Mapping[str, Any]) -> RunCost:
    algorithm, trainer = settings["algorithm"], settings["trainer"]
    num_generations = algorithm["num_generations"]
    per_step = trainer["completions_per_step"] or trainer["prompts_per_step"] * num_generations
    completions = tokens = hours = None
    if "train/reward" in curves:  # there on the steps that generated
        completions = len(curves["train/reward"][0]) * per_step * algorithm["updates_per_batch"]
        if "train/dynamic_sampling/discarded_completions" in curves:
            completions += float(curves["train/dynamic_sampling/discarded_completions"][1].sum())
    if "train/num_tokens" in curves:
        tokens = float(curves["train/num_tokens"][1][-1])
    if "time/step" in curves:
        hours = float(curves["time/step"][1].sum()) * settings["launch"]["num_processes"] / 3600
    return RunCost(completions, tokens, hours)


def _is_on_gpu(directory: RunDirectory) -> bool | None:
    if not directory.provenance.is_file():
        return None
    devices = (json.loads(directory.provenance.read_text()).get("torch") or {}).get("devices")
    return None if not devices else devices != ["cpu"]
