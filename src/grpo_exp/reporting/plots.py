"""The curves of one run as a PNG of small panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from grpo_exp.tracking.metrics_log import MetricsRecord, last_per_step

#: Okabe and Ito's colours, which people with colour blindness can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
NUM_COLUMNS = 3
MAX_PANELS = 9
PANEL_INCHES = (4.2, 2.7)
DOTS_PER_INCH = 130
#: The smoothed line is a centred mean over this share of the steps.
SMOOTHED_SHARE = 1 / 15

#: Optimizer steps and values, both of shape (num_steps_with_a_value,).
Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Panel:
    """What one panel shows."""

    title: str
    unit: str
    #: Legend text by metric; one metric needs no legend.
    metrics: Mapping[str, str]
    #: Lowest and highest value of the y axis; None leaves it to the data.
    limits: tuple[float | None, float | None] = (None, None)
    #: Draws something else than lines.
    draw: Callable[[Axes, Mapping[str, Curve], Panel], None] | None = None


def plot_curves(
    records: Sequence[MetricsRecord],
    path: Path,
    title: str,
    *,
    evaluation: Mapping[str, Any] | None = None,
) -> None:
    """Draw the curves of one run: raw values light, a smoothed line on top.

    A panel whose metrics do not exist in this run (KL at beta 0) is left out.

    Args:
        records: Content of `metrics.jsonl`; of a step that was repeated, the last values count.
        path: The PNG to write; its folder exists.
        title: Stands above the panels.
        evaluation: `eval` of `result.json`, whose intervals are drawn around the held-out accuracy.
    """
    merged = last_per_step(records)
    curves = to_curves(merged)
    panels = [panel for panel in panels_of(curves) if any(name in curves for name in panel.metrics)][:MAX_PANELS]
    num_rows = max(1, -(-len(panels) // NUM_COLUMNS))
    num_columns = max(1, min(NUM_COLUMNS, len(panels)))
    width, height = PANEL_INCHES[0] * num_columns, PANEL_INCHES[1] * num_rows + 0.4
    # The object API: pyplot would keep every figure of a sweep alive and might look for a display.
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold", y=1 - 0.1 / height, va="top")
    # Margins in inches. An automatic layout would draw everything twice, which doubles the time.
    figure.subplots_adjust(
        left=0.65 / width,
        right=1 - 0.1 / width,
        bottom=0.5 / height,
        top=1 - 0.7 / height,
        wspace=0.22,
        hspace=0.45,
    )
    grid = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        draw_panel(axes, curves, panel, last_step=merged[-1]["step"], evaluation=evaluation)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.savefig(path)


def draw_panel(
    axes: Axes, curves: Mapping[str, Curve], panel: Panel, *, last_step: int, evaluation: Mapping[str, Any] | None
) -> None:
    """Draw one panel with title, units and legend; metrics that do not exist are left out."""
    (panel.draw or _draw_lines)(axes, curves, panel)
    if panel.draw is _draw_accuracy and evaluation:
        _draw_intervals(axes, curves, evaluation)
    _finish_axes(axes, panel, last_step=last_step)


def to_curves(records: Sequence[MetricsRecord]) -> dict[str, Curve]:
    """Collect steps and values of each metric; a step without the metric is left out."""
    points: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, value in record["metrics"].items():
            points.setdefault(name, []).append((record["step"], value))
    return {
        name: (np.array([step for step, _ in pairs]), np.array([value for _, value in pairs]))
        for name, pairs in points.items()
    }


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving mean of values (num_steps,); the window is cut off at both ends."""
    half = int(len(values) * SMOOTHED_SHARE / 2)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, behind = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[behind] - sums[first]) / (behind - first)


def panels_of(curves: Mapping[str, Curve]) -> list[Panel]:
    """Return all panels for the curves of a run, also those whose metrics it lacks."""
    # Of the prompts whose turn it is: dynamic sampling chooses groups whose rewards differ, so the mean of those says
    # nothing about the policy.
    chosen = "train/dynamic_sampling/reward" in curves
    train, of = ("train/dynamic_sampling/", ", before groups are chosen") if chosen else ("train/", "")
    prefix, suffix = f"{train}rewards/", "/mean"
    components = {
        name: name.removeprefix(prefix).removesuffix(suffix)
        for name in curves
        if name.startswith(prefix) and name.endswith(suffix)
    }
    groups = {"train/frac_reward_zero_std": "with equal rewards"}
    if chosen:
        groups["train/dynamic_sampling/acceptance_rate"] = "with different rewards, of all drawn"
    accuracies = {"eval/accuracy": "sampled", "eval/greedy_accuracy": "greedy"}
    clip_ratios = {
        "train/clip_ratio/low_mean": "at the low bound",
        "train/clip_ratio/high_mean": "at the high bound",
    }
    times = {"time/generate": "generate", "time/reward": "reward", "time/train": "train"}
    times = {name: label for name, label in times.items() if name in curves} or {"time/step": "step"}
    return [
        Panel("Reward", f"mean{of}", {f"{train}reward": "reward"}),
        Panel("Reward components", f"mean{of}", components),
        Panel("Held-out accuracy", "share correct", accuracies, (0, 1), _draw_accuracy),
        Panel("Completion length", "tokens", {"train/completion_length/mean": "mean"}, (0, None), _draw_length),
        Panel("Entropy", "nats per token", {"train/entropy": "entropy"}, (0, None)),
        Panel("KL", "nats per token", {"train/kl": "to the reference", "train/kl_from_start": "from the start"}),
        Panel("Clipped tokens", "share of tokens", clip_ratios, (0, None)),
        Panel("Groups", "share of groups", groups, (0, 1)),
        Panel("Time per step", "seconds", times, draw=_draw_times),
        # Last, since it only fills the place of a panel that this run does not have.
        Panel("Gradient norm", "norm before clipping", {"train/grad_norm": "norm"}, (0, None)),
    ]


def _draw_lines(axes: Axes, curves: Mapping[str, Curve], panel: Panel) -> None:
    for (name, label), color in zip(panel.metrics.items(), _colors(len(panel.metrics)), strict=True):
        if name in curves:
            steps, values = curves[name]
            axes.plot(steps, values, color=color, alpha=0.3, linewidth=0.8)
            axes.plot(steps, smooth(values), color=color, linewidth=1.8, label=label)


def _draw_length(axes: Axes, curves: Mapping[str, Curve], panel: Panel) -> None:
    low, high = curves.get("train/completion_length/min"), curves.get("train/completion_length/max")
    if low is not None and high is not None and np.array_equal(low[0], high[0]):
        axes.fill_between(
            low[0], low[1], high[1], color=COLORS[0], alpha=0.12, linewidth=0, label="shortest to longest"
        )
    _draw_lines(axes, curves, panel)


def _draw_accuracy(axes: Axes, curves: Mapping[str, Curve], panel: Panel) -> None:
    for (name, label), color in zip(panel.metrics.items(), COLORS, strict=False):
        if name in curves:
            steps, values = curves[name]
            text = f"{label}: {values[0]:.2f} to {values[-1]:.2f}" if len(values) > 1 else label
            axes.plot(steps, values, "o--", color=color, linewidth=1.0, markersize=5, label=text)


def _draw_intervals(axes: Axes, curves: Mapping[str, Curve], evaluation: Mapping[str, Any]) -> None:
    for key, color in zip(("accuracy", "greedy_accuracy"), COLORS, strict=False):
        if f"eval/{key}" not in curves:
            continue
        steps, _ = curves[f"eval/{key}"]
        for when, step in (("before", steps[0]), ("after", steps[-1])):
            interval = (evaluation.get(when) or {}).get(f"{key}_interval")
            if interval is not None:
                axes.plot([step, step], list(interval), color=color, linewidth=4, alpha=0.35)


def _draw_times(axes: Axes, curves: Mapping[str, Curve], panel: Panel) -> None:
    # Stacked: what adds up to a step. Steps that lack one part are left out.
    parts = [dict(zip(*curves[name], strict=True)) for name in panel.metrics]
    steps = sorted(set(parts[0]).intersection(*parts[1:]))
    values = [[part[step] for step in steps] for part in parts]
    axes.stackplot(steps, values, labels=list(panel.metrics.values()), colors=COLORS[: len(values)], alpha=0.8)
    axes.set_ylim(0, 1.3 * max(map(sum, zip(*values, strict=True)), default=1.0))  # room for the legend


def _finish_axes(axes: Axes, panel: Panel, *, last_step: int) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.set_xlabel("optimizer step", fontsize=8)
    axes.set_ylabel(panel.unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    margin = 0.02 * max(1, last_step)
    axes.set_xlim(-margin, max(1, last_step) + margin)
    if panel.limits != (None, None):
        low, high = panel.limits
        # A hair above the highest value, so that a line at 1 is seen.
        axes.set_ylim(low, None if high is None else high * 1.04)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        num_columns = len(handles) if panel.draw is _draw_times else 1
        axes.legend(handles, labels, fontsize=7.5, frameon=False, ncols=num_columns)


def _colors(count: int) -> list[str]:
    return [COLORS[number % len(COLORS)] for number in range(count)]
