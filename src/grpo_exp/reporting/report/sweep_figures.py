"""Pictures of what a sweep found: points, effects of axes, interactions, cost against quality."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from grpo_exp.reporting.plots import COLORS
from grpo_exp.reporting.report.analysis import Analysis, PointSummary
from grpo_exp.reporting.report.costs import PointCost
from grpo_exp.reporting.report.document import Picture
from grpo_exp.reporting.report.drawing import SIZE, draw
from grpo_exp.reporting.report.sweep_data import Axis as SweptAxis
from grpo_exp.reporting.report.sweep_data import SweepData, short_names, shown

#: Points in the picture of points; more cannot be read.
_MOST_POINTS = 30
#: Pairs of axes of which the interaction is drawn.
_MOST_HEAT_MAPS = 6


def points_picture(analysis: Analysis) -> Picture:
    """Return mean, interval and single seeds of each point, the best on top."""
    known = [summary for summary in analysis.summaries if summary.mean is not None][:_MOST_POINTS]

    def paint(axes: Axes) -> None:
        for place, summary in enumerate(known):
            if summary.interval is not None:
                axes.plot(list(summary.interval), [place, place], color=COLORS[0], linewidth=3, alpha=0.3)
            axes.plot(summary.values, [place] * len(summary.values), ".", color=COLORS[6], markersize=4)
            axes.plot([summary.mean or 0.0], [place], "o", color=COLORS[0], markersize=5)
        axes.set_yticks(range(len(known)), [summary.point.label for summary in known], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(analysis.metric, fontsize=8)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)

    return draw(
        "points", paint, title="Points", size=(SIZE[0] + 1.4, max(1.6, 0.9 + 0.19 * len(known))),
        alt=f"{analysis.metric} of {len(known)} points with 95 % intervals over seeds",
        caption="Large dots: means; small dots: seeds; bars: 95 % intervals over seeds.",
    )  # fmt: skip


def axis_pictures(data: SweepData, analysis: Analysis) -> list[Picture]:
    """Return a picture for each axis: the mean at each of its values, and each seed's."""
    return [_axis_picture(number, axis, data, analysis) for number, axis in enumerate(data.axes, start=1)]


def _axis_picture(number: int, axis: SweptAxis, data: SweepData, analysis: Analysis) -> Picture:
    table = data.table(analysis.metric)

    def paint(axes: Axes) -> None:
        members = [[p.index for p in data.points if axis.level_of(p.values) == level] for level in axis.levels]
        # Of the points' means: a point that lost a run counts as much as the others.
        means = np.array([_mean(np.array([_mean(table[row]) for row in rows])) for rows in members])
        for column in range(len(data.seeds)):
            of_seed = np.array([_mean(table[rows, column]) for rows in members])
            label = "single seeds" if column == 0 else None
            axes.plot(of_seed, "o-", color=COLORS[6], alpha=0.45, linewidth=0.9, markersize=3, label=label)
        axes.plot(means, "o-", color=COLORS[0], linewidth=2, markersize=6, label="mean")
        labels = [" & ".join(map(shown, level)) for level in axis.levels]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_xlabel(axis.title, fontsize=8)
        axes.set_ylabel(analysis.metric, fontsize=8)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=7.5, frameon=False)

    alt = f"Mean {analysis.metric} at each value of {axis.title}, over everything else that is swept"
    return draw(f"axis_{number}", paint, title=_short_title(axis, data), alt=alt)


def _short_title(axis: SweptAxis, data: SweepData) -> str:
    names = short_names(list(data.points[0].values))
    return " & ".join(names[key] for key in axis.keys)


def heat_maps(data: SweepData, analysis: Analysis) -> list[Picture]:
    """Return a picture for each two axes with two values or more: the mean in each combination."""
    pairs = list(itertools.combinations(data.axes, 2))[:_MOST_HEAT_MAPS]
    return [_heat_map(number, first, second, data, analysis) for number, (first, second) in enumerate(pairs, start=1)]


def _heat_map(number: int, down: SweptAxis, across: SweptAxis, data: SweepData, analysis: Analysis) -> Picture:
    table = data.table(analysis.metric)
    means = np.full((len(down.levels), len(across.levels)), np.nan)
    for row, column in np.ndindex(means.shape):
        wanted = (down.levels[row], across.levels[column])
        inside = [p.index for p in data.points if (down.level_of(p.values), across.level_of(p.values)) == wanted]
        means[row, column] = _mean(np.array([_mean(table[point]) for point in inside]))

    def paint(axes: Axes) -> None:
        axes.grid(visible=False)
        axes.pcolormesh(np.ma.masked_invalid(means), cmap="viridis", edgecolors="white", linewidth=1)
        middle = (np.nanmin(means) + np.nanmax(means)) / 2 if np.isfinite(means).any() else 0.0
        for (row, column), value in np.ndenumerate(means):
            text = "none" if np.isnan(value) else f"{value:.3f}"
            color = "black" if np.isnan(value) or value > middle else "white"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=color)
        axes.set_xticks(np.arange(len(across.levels)) + 0.5, [" & ".join(map(shown, level)) for level in across.levels])
        axes.set_yticks(np.arange(len(down.levels)) + 0.5, [" & ".join(map(shown, level)) for level in down.levels])
        axes.set_xlabel(across.title, fontsize=8)
        axes.set_ylabel(down.title, fontsize=8)

    title = f"{_short_title(down, data)} x {_short_title(across, data)}"
    alt = f"Mean {analysis.metric} for each combination of {down.title} and {across.title}"
    return draw(f"interaction_{number}", paint, title=title, alt=alt)


def _mean(values: np.ndarray) -> float:
    """Return the mean of what is known, NaN of nothing."""
    return float("nan") if np.isnan(values).all() else float(np.nanmean(values))


def cost_picture(
    summaries: Sequence[PointSummary], costs: Sequence[PointCost], chosen: set[int], *, unit: str, metric: str
) -> Picture:
    """Return cost against quality, with the points that no cheaper one equals joined by a line.

    Args:
        summaries: Points with a mean.
        costs: Their costs, in the same order.
        chosen: Places of those in the Pareto set.
        unit: What the cost is counted in.
        metric: What the quality is.
    """

    def paint(axes: Axes) -> None:
        front = sorted((costs[i].value, summaries[i].mean or 0.0, i) for i in chosen)
        rest = [i for i in range(len(summaries)) if i not in chosen]
        others = [summaries[i].mean or 0.0 for i in rest]
        axes.plot([costs[i].value for i in rest], others, "o", color=COLORS[6], alpha=0.5, label="other points")
        axes.plot([x for x, *_ in front], [y for _, y, _ in front], "o-", color=COLORS[1], label="Pareto set")
        for x, y, place in front:
            number = str(sorted(chosen).index(place) + 1)
            axes.annotate(number, (x, y), fontsize=7, xytext=(3, -10), textcoords="offset points")
        axes.set_xlabel(f"{unit} for each run", fontsize=8)
        axes.set_ylabel(metric, fontsize=8)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=7.5, frameon=False)

    alt = f"{metric} against {unit}; {len(chosen)} of {len(summaries)} points are in the Pareto set"
    names = "; ".join(f"{n}: {summaries[i].point.label}" for n, i in enumerate(sorted(chosen), start=1))
    name, title = f"cost_{unit.replace(' ', '_')}", f"{metric} against {unit}"
    return draw(name, paint, title=title, alt=alt, caption=f"Pareto set: {names}.")
