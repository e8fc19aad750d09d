"""Curves of a sweep: one line per point with a band over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from grpo_exp.reporting import plots
from grpo_exp.reporting.report.analysis import Analysis
from grpo_exp.reporting.report.document import Picture
from grpo_exp.reporting.report.drawing import draw
from grpo_exp.reporting.report.sweep_data import SweepData, SweepPoint

#: Points in colour; the others are grey.
MOST_COLORED = 6
#: Grey lines in a picture.
_MOST_GREY = 150


@dataclass(frozen=True, slots=True)
class Band:
    """A metric of a point over its seeds; all of shape (num_steps,)."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    """Of the seed that is lowest there."""
    high: np.ndarray
    num_seeds: np.ndarray
    """How many seeds have a value there: runs that ended early have none later."""


def band_of(point: SweepPoint, metric: str) -> Band | None:
    """Return a metric over the seeds of a point, None where no run has it."""
    curves = [run.curves[metric] for run in point.runs if metric in run.curves]
    if not curves:
        return None
    steps = np.unique(np.concatenate([found for found, _ in curves]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, (found, of_run) in enumerate(curves):
        values[row, np.searchsorted(steps, found)] = of_run
    counts = (~np.isnan(values)).sum(axis=0)
    return Band(steps, np.nanmean(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0), counts)


def band_pictures(data: SweepData, analysis: Analysis) -> list[Picture]:
    """Return a picture for each metric that a run of the sweep has."""
    present = {name: curve for point in data.points for run in point.runs for name, curve in run.curves.items()}
    ranked = [summary.point for summary in analysis.summaries]
    wanted = _metrics(present)
    pictures = []
    for number, (metric, (title, unit)) in enumerate(wanted.items(), start=1):
        bands = [(point, band) for point in ranked if (band := band_of(point, metric)) is not None]
        caption = f"{metric}: mean over seeds; bands from the lowest to the highest seed."
        if len(bands) > MOST_COLORED:
            caption += f" Coloured: the {MOST_COLORED} points with the highest {analysis.metric}."
        pictures.append(
            draw(
                f"band_{number:02}",
                partial(_paint, bands=bands, unit=unit),
                title=title,
                alt=f"{title} ({unit}) over optimizer steps for {len(bands)} points",
                caption=caption,
                legend_below=0 if len(bands) == 1 else min(len(bands), MOST_COLORED + 1),
            )
        )
    return pictures


def _metrics(present: Mapping[str, plots.Curve]) -> dict[str, tuple[str, str]]:
    """Return title and unit of the metrics to draw, one picture each, in the order of the panels of a run."""
    found: dict[str, tuple[str, str]] = {}
    for panel in plots.panels_of(present):
        for metric, label in panel.metrics.items():
            if metric in present:
                several = sum(name in present for name in panel.metrics) > 1
                found[metric] = (f"{panel.title}: {label}" if several else panel.title, panel.unit)
    truncated = "train/completion_length/truncated_fraction"
    if truncated in present:
        found[truncated] = ("Truncated completions", "share of completions")
    return found


def _paint(axes: Axes, *, bands: Sequence[tuple[SweepPoint, Band]], unit: str) -> None:
    grey = [np.column_stack([band.steps, band.mean]) for _, band in bands[MOST_COLORED : MOST_COLORED + _MOST_GREY]]
    if grey:
        axes.add_collection(LineCollection(grey, colors="#bbbbbb", linewidths=0.6, alpha=0.6, label="other points"))
    for (point, band), color in zip(bands, plots.COLORS, strict=False):
        axes.fill_between(band.steps, band.low, band.high, color=color, alpha=0.15, linewidth=0)
        marker = "o-" if len(band.steps) <= 3 else "-"
        axes.plot(band.steps, band.mean, marker, color=color, linewidth=1.4, markersize=4, label=point.label)
        if color == plots.COLORS[MOST_COLORED - 1]:
            break
    axes.autoscale_view()
    axes.set_xlabel("optimizer step", fontsize=8)
    axes.set_ylabel(unit, fontsize=8)
    axes.grid(color="#dddddd", linewidth=0.6)
