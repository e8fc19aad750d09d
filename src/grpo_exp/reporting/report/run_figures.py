"""Pictures of the curves of one run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from grpo_exp.reporting import plots
from grpo_exp.reporting.report.document import Picture
from grpo_exp.reporting.report.drawing import draw
from grpo_exp.reporting.report.run_data import RunData


def curve_pictures(run: RunData) -> list[Picture]:
    """Return a picture for each panel of which the run has a curve."""
    panels = [panel for panel in plots.panels_of(run.curves) if any(name in run.curves for name in panel.metrics)]
    return [
        draw(
            f"curve_{number:02}_{panel.title.lower().replace(' ', '_')}",
            partial(_paint, run=run, panel=panel),
            title=panel.title,
            alt=f"{panel.title} ({panel.unit}) over optimizer steps: {', '.join(panel.metrics.values())}",
        )
        for number, panel in enumerate(panels, start=1)
    ]


def _paint(axes: Axes, *, run: RunData, panel: plots.Panel) -> None:
    plots.draw_panel(axes, run.curves, panel, last_step=run.steps, evaluation=run.evaluation)


def benchmark_picture(name: str, curve: Mapping[int, Mapping[str, Any]]) -> Picture:
    """Return a benchmark over the checkpoints of a run.

    Args:
        name: Of the benchmark.
        curve: Optimizer step -> metrics, each with `value` and `interval`.
    """
    steps = sorted(curve)
    names = list(curve[steps[-1]])
    # Mean, and of pass@k and maj@k the largest k: the others lie between.
    shown = dict.fromkeys(
        name for part in ("mean_at_", "pass_at_", "maj_at_") for name in [n for n in names if n.startswith(part)][-1:]
    )

    def paint(axes: Axes) -> None:
        for color, metric in zip(plots.COLORS, shown, strict=False):
            known = [(step, curve[step][metric]) for step in steps if metric in curve[step]]
            axes.plot([s for s, _ in known], [m["value"] for _, m in known], "o-", color=color,
                      label=metric.replace("_at_", "@"))  # fmt: skip
            for step, found in known:
                if found["interval"] is not None:
                    axes.plot([step, step], found["interval"], color=color, linewidth=4, alpha=0.3)
        axes.set_ylim(0, 1.04)
        axes.set_xlabel("optimizer step", fontsize=8)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=7.5, frameon=False)

    alt = f"{name} over optimizer steps, with 95 % intervals over prompts"
    return draw(f"benchmark_{name}", paint, title=name, alt=alt)
