"""The CSV files of a sweep's report: every number of it, none left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grpo_exp.reporting.report.analysis import Analysis
from grpo_exp.reporting.report.band_figures import Band, band_of
from grpo_exp.reporting.report.sweep_data import SweepData, shown

#: Headings and rows.
Table = tuple[Sequence[str], Sequence[Sequence[object]]]


def sweep_tables(data: SweepData, analysis: Analysis) -> dict[str, Table]:
    """Return the tables by name."""
    return {
        "runs": _runs(data, analysis.metric),
        "points": _points(data, analysis),
        "effects": _effects(analysis),
        "comparisons": _comparisons(analysis),
        "findings": _findings(data),
        "curves": _curves(data),
    }


def _runs(data: SweepData, metric: str) -> Table:
    keys = list(data.points[0].values)
    reasons = {s.entry.run_directory: s.reason for s in data.statuses}
    rows = [
        (point.point_id, *point.values.values(), seed, run.state, run.steps, run.value(metric), run.cost.completions,
         run.cost.tokens, run.cost.device_hours, (run.result or {}).get("wall_seconds"), len(run.findings),
         run.directory.path.name, reasons[run.directory.path.name])
        for point in data.points
        for seed, run in zip(point.seeds, point.runs, strict=True)
    ]  # fmt: skip
    headings = ("point_id", *keys, "seed", "state", "steps", metric, "completions", "tokens", "device_hours",
                "wall_seconds", "findings", "run_directory", "reason")  # fmt: skip
    return headings, rows


def _points(data: SweepData, analysis: Analysis) -> Table:
    keys = list(data.points[0].values)
    rows = []
    for summary in analysis.summaries:
        low, high = summary.interval or (None, None)
        costs = [_mean([getattr(run.cost, field) for run in summary.point.runs])
                 for field in ("completions", "tokens", "device_hours")]  # fmt: skip
        rows.append((
            summary.point.point_id, *summary.point.values.values(), len(summary.point.runs), len(summary.values),
            summary.mean, low, high, *costs,
        ))  # fmt: skip
    headings = ("point_id", *keys, "runs", "runs_with_value", analysis.metric, "low_95", "high_95", "completions_mean",
                "tokens_mean", "device_hours_mean")  # fmt: skip
    return headings, rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _effects(analysis: Analysis) -> Table:
    headings = ("setting", "first", "second", "second_minus_first", "low_95", "high_95", "standard_error", "degrees",
                "pairs", "p", "p_corrected", "supported")  # fmt: skip
    rows = [
        (e.axis.title, " & ".join(map(shown, e.first)), " & ".join(map(shown, e.second)), e.contrast.difference,
         *e.contrast.interval(), e.contrast.standard_error, e.contrast.degrees, e.contrast.num_pairs,
         e.contrast.p_value, e.adjusted, e.is_supported)
        for e in analysis.effects
    ]  # fmt: skip
    return headings, rows


def _comparisons(analysis: Analysis) -> Table:
    headings = ("first", "second", "second_minus_first", "low_95", "high_95", "standard_error", "degrees", "pairs",
                "p", "p_corrected", "supported")  # fmt: skip
    rows = [
        (c.first.label, c.second.label, c.contrast.difference, *c.contrast.interval(), c.contrast.standard_error,
         c.contrast.degrees, c.contrast.num_pairs, c.contrast.p_value, c.adjusted, c.is_supported)
        for c in analysis.comparisons
    ]  # fmt: skip
    return headings, rows


def _findings(data: SweepData) -> Table:
    rows = [
        (point.label, seed, run.directory.path.name, event["kind"], event["rule"], event.get("step"), event["text"])
        for point in data.points
        for seed, run in zip(point.seeds, point.runs, strict=True)
        for event in run.findings
    ]
    return ("point", "seed", "run_directory", "severity", "rule", "step", "text"), rows


def _curves(data: SweepData) -> Table:
    metrics = dict.fromkeys(name for point in data.points for run in point.runs for name in run.curves)
    rows: list[Sequence[object]] = []
    for point in data.points:
        for metric in metrics:
            band = band_of(point, metric)
            if band is not None:
                rows += _band_rows(point.point_id, metric, band)
    return ("point_id", "metric", "step", "mean", "lowest_seed", "highest_seed", "seeds"), rows


def _band_rows(point_id: str, metric: str, band: Band) -> list[Sequence[object]]:
    columns = [np.asarray(column).tolist() for column in (band.steps, band.mean, band.low, band.high, band.num_seeds)]
    return [(point_id, metric, *values) for values in zip(*columns, strict=True)]
