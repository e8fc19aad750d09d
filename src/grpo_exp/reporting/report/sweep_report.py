"""The report of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_exp.reporting.columns import ABSENT
from grpo_exp.reporting.report import csv_tables
from grpo_exp.reporting.report.analysis import ALPHA, Analysis, PointSummary, analyse
from grpo_exp.reporting.report.band_figures import band_pictures
from grpo_exp.reporting.report.costs import cost_units, costs_of, total_cost
from grpo_exp.reporting.report.document import Block, DataTable, Gallery, Paragraphs, Picture, Report, Section
from grpo_exp.reporting.report.run_data import RunData
from grpo_exp.reporting.report.run_report import findings_table
from grpo_exp.reporting.report.samples import sample_completions
from grpo_exp.reporting.report.sentences import method, write_sentences
from grpo_exp.reporting.report.sweep_data import SweepData, shown
from grpo_exp.reporting.report.sweep_figures import axis_pictures, cost_picture, heat_maps, points_picture
from grpo_exp.statistics.pareto import pareto_set

_BEFORE = "accuracy before"


def build_sweep_report(data: SweepData, *, metric: str) -> Report:
    """Return the report of a sweep as it stands.

    Args:
        data: The sweep.
        metric: What points are judged by: `accuracy`, `greedy_accuracy`, or the name of a curve; more is better.
    """
    analysis = analyse(data, metric)
    known = [summary for summary in analysis.summaries if summary.mean is not None]
    lead = Paragraphs(write_sentences(data, analysis), as_list=True, is_lead=True)
    sections = [
        Section("What the seeds support", [lead, Paragraphs([method(analysis)])]),
        Section("Points", [*([points_picture(analysis)] if known else []), _points_table(data, analysis)]),
        *_unfinished(data, metric),
        *_effects(data, analysis, known),
        *_comparisons(analysis),
        *_costs(data, analysis, known),
        Section("Curves", _curves(data, analysis)),
        Section("Health", [findings_table(_runs_by_label(data))]),
        *_completions(known),
    ]
    statuses = len(data.statuses)
    name = data.sweep.path.name
    seeds = "1 seed" if len(data.seeds) == 1 else f"{len(data.seeds)} seeds"
    subtitle = f"{len(data.points)} points, {seeds}, {statuses} runs, judged by {metric}"
    return Report(f"Sweep {name}", subtitle, sections, csv_tables.sweep_tables(data, analysis))


def _curves(data: SweepData, analysis: Analysis) -> list[Block]:
    pictures = band_pictures(data, analysis)
    return [Gallery(pictures)] if pictures else [Paragraphs(["No step was measured yet."])]


def _points_table(data: SweepData, analysis: Analysis) -> DataTable:
    keys = list(data.points[0].values)
    headings = (*keys, "runs", analysis.metric, "95 % interval", "each seed", _BEFORE)
    rows = []
    for summary in analysis.summaries:
        point = summary.point
        states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in point.states.items())
        interval = summary.interval
        measured = [(run.evaluation.get("before") or {}).get("accuracy") for run in point.runs]
        before = [value for value in measured if value is not None]
        rows.append((
            *(shown(point.values[key]) for key in keys),
            states,
            ABSENT if summary.mean is None else f"{summary.mean:.3f}",
            ABSENT if interval is None else f"{interval.low:.3f} to {interval.high:.3f}",
            " ".join(f"{value:.3f}" for value in summary.values) or ABSENT,
            f"{sum(before) / len(before):.3f}" if before else ABSENT,
        ))  # fmt: skip
    caption = "The highest mean first. An interval needs two seeds that differ."
    return DataTable(headings, rows, num_text_columns=len(keys) + 1, caption=caption, file="points.csv")


def _unfinished(data: SweepData, metric: str) -> list[Section]:
    points = {point.point_id: point for point in data.points}
    rows = []
    for status in sorted(data.statuses, key=lambda s: points[s.entry.point_id].index):
        point, seed = points[status.entry.point_id], status.entry.seed
        is_completed = status.state == "completed"
        if is_completed and point.runs[point.seeds.index(seed)].value(metric) is not None:
            continue
        rows.append((
            str(status.entry.index), point.label, str(seed), status.state.replace("_", " "),
            ABSENT if status.steps is None else str(status.steps),
            f"did not measure {metric}" if is_completed else status.reason or "",
        ))  # fmt: skip
    if not rows:
        return []
    headings = ("run", "point", "seed", "state", "steps", "reason")
    caption = "Failed, ended, unfinished, never started and unmeasured runs. They are in no mean."
    table = DataTable(headings, rows, num_text_columns=6, caption=caption, file="runs.csv")
    return [Section("Runs without a result", [table])]


def _effects(data: SweepData, analysis: Analysis, known: Sequence[PointSummary]) -> list[Section]:
    if not data.axes or not known:
        return []
    rows = [
        (effect.axis.title, " & ".join(map(shown, effect.second)), " & ".join(map(shown, effect.first)),
         "yes" if effect.is_supported else "no", f"{effect.contrast.difference:+.4f}",
         "{:+.4f} to {:+.4f}".format(*effect.contrast.interval()), f"{effect.contrast.degrees:.1f}",
         f"{effect.contrast.num_pairs}", _p(effect.adjusted))
        for effect in analysis.effects
    ]  # fmt: skip
    headings = (
        "setting",
        "value",
        "against",
        "supported",
        "difference",
        "95 % interval",
        "degrees",
        "pairs",
        "p corrected",
    )
    blocks: list[Block] = [Gallery(axis_pictures(data, analysis))]
    if rows:
        caption = "Mean difference between runs of one seed that differ in this setting alone."
        blocks.append(DataTable(headings, rows, num_text_columns=4, caption=caption, file="effects.csv"))
    maps: list[Picture] = heat_maps(data, analysis)
    if maps:
        blocks.append(Gallery(maps))
    return [Section("Effects of settings", blocks)]


def _comparisons(analysis: Analysis) -> list[Section]:
    if not analysis.comparisons or len({effect.axis for effect in analysis.effects}) == 1:
        return []  # with one axis the effects are the comparisons
    ordered = sorted(analysis.comparisons, key=lambda c: c.contrast.p_value)
    rows = []
    for comparison in ordered:
        is_up = comparison.contrast.difference > 0
        better, worse = (comparison.second, comparison.first) if is_up else (comparison.first, comparison.second)
        low, high = sorted(end if is_up else -end for end in comparison.contrast.interval())
        rows.append((
            better.label, worse.label, "yes" if comparison.is_supported else "no",
            f"{abs(comparison.contrast.difference):.4f}", f"{low:+.4f} to {high:+.4f}",
            str(comparison.contrast.num_pairs), _p(comparison.adjusted),
        ))  # fmt: skip
    supported = sum(comparison.is_supported for comparison in ordered)
    caption = f"{supported} of {len(ordered)} differences are supported at {ALPHA:.0%} after correction."
    headings = ("better", "worse", "supported", "difference", "95 % interval", "pairs", "p corrected")
    table = DataTable(headings, rows, num_text_columns=3, caption=caption, most=25, file="comparisons.csv")
    return [Section("Points against each other", [table])]


def _costs(data: SweepData, analysis: Analysis, known: Sequence[PointSummary]) -> list[Section]:
    units = cost_units(data)
    totals = [f"{unit}: {_amount(total_cost(data, field))} in all" for unit, field in units.items()]
    pictures, columns, fronts = [], {}, {}
    for unit, field in units.items():
        costs = costs_of(known, field)
        if costs is None or not known:
            continue
        values = [cost.value for cost in costs]
        front = set(pareto_set(values, [summary.mean or 0.0 for summary in known]))
        pictures.append(cost_picture(known, costs, front, unit=unit, metric=analysis.metric))
        columns[unit], fronts[unit] = values, front
    rows = [
        (summary.point.label, ", ".join(unit for unit in columns if place in fronts[unit]), f"{summary.mean:.3f}",
         *(_amount(values[place]) for values in columns.values()))
        for place, summary in enumerate(known)
        if any(place in front for front in fronts.values())
    ]  # fmt: skip
    blocks: list[Block] = [Paragraphs(totals, as_list=True)]
    if pictures:
        headings = ("point", "best for its", analysis.metric, *columns)
        caption = "Points that no cheaper one equals, by means; seeds may not support all of the differences."
        blocks += [Gallery(pictures), DataTable(headings, rows, num_text_columns=2, caption=caption, file="points.csv")]
    return [Section("Cost against quality", blocks)]


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _p(adjusted: float) -> str:
    return "< 0.0001" if adjusted < 0.0001 else f"{adjusted:.4f}"


def _runs_by_label(data: SweepData) -> dict[str, RunData]:
    return {
        f"{point.label}, seed {seed}": run
        for point in data.points
        for seed, run in zip(point.seeds, point.runs, strict=True)
    }


def _completions(known: Sequence[PointSummary]) -> list[Section]:
    """Show completions of the points with the highest and the lowest mean."""
    samples = []
    for title, summary in {"highest": known[:1], "lowest": known[1:][-1:]}.items():
        for one in summary:
            run = next((run for run in one.point.runs if run.state == "completed"), one.point.runs[0])
            found = sample_completions(run.directory)
            where = f"{title} mean, {one.point.label}"
            samples += [replace(sample, title=f"{where}: {sample.title}") for sample in found]
    return [Section("Completions", samples)] if samples else []
