"""The report of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_exp.evaluation.results import measured_differently, read_results
from grpo_exp.provenance import changed_settings
from grpo_exp.reporting.columns import ABSENT, format_duration
from grpo_exp.reporting.report.document import Block, DataTable, Gallery, Paragraphs, Report, Section
from grpo_exp.reporting.report.run_data import RunData
from grpo_exp.reporting.report.run_figures import benchmark_picture, curve_pictures
from grpo_exp.reporting.report.samples import sample_completions
from grpo_exp.reporting.summary import accuracy_interval

_SEVERITIES = ("critical", "warning", "info")


def build_run_report(run: RunData) -> Report:
    """Return the report of a run as it stands."""
    settings = run.settings
    sections = [
        Section("How it ended", [Paragraphs([_ending(run)], is_lead=True), *_held_out(run)]),
        Section(
            "Curves", [Gallery(curve_pictures(run))] if run.curves else [Paragraphs(["No step was measured yet."])]
        ),
        *_benchmarks(run),
        Section("Health", [findings_table({"": run})]),
        Section("Cost", [Paragraphs(_cost(run), as_list=True)]),
    ]
    samples = sample_completions(run.directory, each=2)
    if samples:
        sections.append(Section("Completions", samples))
    sections.append(Section("Settings", [_settings_table(settings)]))
    curves = [
        (name, int(step), float(value))
        for name, curve in run.curves.items()
        for step, value in zip(*curve, strict=True)
    ]
    return Report(
        f"{settings['name']} {run.directory.run_id}",
        f"{settings['algorithm']['name']}, seed {settings['seed']}, {run.directory.path}",
        sections,
        {"curves": (("metric", "step", "value"), curves)},
    )


def _ending(run: RunData) -> str:
    planned = run.settings["trainer"]["max_steps"]
    reason = f": {run.reason}" if run.reason else ""
    return f"{run.state.replace('_', ' ').capitalize()} after {run.steps} of {planned} steps{reason}."


def _held_out(run: RunData) -> list[Block]:
    before, after = run.evaluation.get("before") or {}, run.evaluation.get("after") or {}
    if not before and not after:
        return [Paragraphs(["There is no held-out result: it is measured before and behind training."])]
    rows = [
        _before_after("sampled accuracy", before, after, "accuracy"),
        _before_after("greedy accuracy", before, after, "greedy_accuracy"),
        *(
            (f"reward: {name}", _plain(before.get("rewards", {}).get(name)), _plain(after.get("rewards", {}).get(name)))
            for name in dict.fromkeys([*before.get("rewards", {}), *after.get("rewards", {})])
        ),
        ("length in tokens", _plain(before.get("completion_length"), 1), _plain(after.get("completion_length"), 1)),
        ("cut at the length limit", _plain(before.get("truncated_fraction")), _plain(after.get("truncated_fraction"))),
    ]
    prompts = after.get("num_prompts") or before.get("num_prompts")
    caption = f"Held-out prompts: {prompts}. In brackets: 95 % intervals over prompts."
    return [DataTable(("", "before", "after"), rows, caption=caption)]


def _before_after(title: str, before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> tuple[str, str, str]:
    return title, _with_interval(before, key), _with_interval(after, key)


def _with_interval(evaluation: Mapping[str, Any], key: str) -> str:
    value, interval = evaluation.get(key), accuracy_interval(evaluation, key)
    if value is None:
        return ABSENT
    return f"{value:.3f}" if interval is None else f"{value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _plain(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _benchmarks(run: RunData) -> list[Section]:
    results = read_results(run.directory.path)
    if not results:
        return []
    pictures = [
        benchmark_picture(name, {step: result["metrics"] for step, result in found.items()})
        for name, found in results.items()
    ]
    mixed = [
        f"{name}: the steps were not measured alike ({', '.join(keys)}), so what differs between them is not learning "
        "alone; one grpo-exp evaluate over all of them measures them anew."
        for name, found in results.items()
        if (keys := measured_differently(found))
    ]
    return [Section("Benchmarks", [*([Paragraphs(mixed)] if mixed else []), Gallery(pictures)])]


def findings_table(runs: Mapping[str, RunData]) -> Block:
    """Return the health findings of runs, the most serious first; a column with the run where there are several."""
    found = [(label, event) for label, run in runs.items() for event in run.findings]
    if not found:
        return Paragraphs(["No health rule found anything."])
    found.sort(key=lambda pair: (_SEVERITIES.index(pair[1]["kind"]), pair[1].get("step", 0)))
    several = len(runs) > 1
    rows = [
        (*([label] if several else []), event["kind"], event["rule"], event["text"], event.get("advice", ""),
         str(event.get("step", ABSENT)))
        for label, event in found
    ]  # fmt: skip
    headings = (*(["run"] if several else []), "severity", "rule", "what was seen", "what to try", "step")
    return DataTable(
        headings, rows, num_text_columns=len(headings) - 1, most=60, file="findings.csv" if several else ""
    )


def _cost(run: RunData) -> list[str]:
    cost, device = run.cost, {True: "GPU-hours", False: "CPU process-hours", None: "device-hours"}[run.on_gpu]
    wall = (run.result or {}).get("wall_seconds")
    lines = [
        f"completions generated for training: {_count(cost.completions)}",
        f"tokens of prompts and completions: {_count(cost.tokens)}",
        f"{device} of training steps: {ABSENT if cost.device_hours is None else format(cost.device_hours, '.3g')}",
    ]
    return [*lines, *([f"wall time of the last attempt: {format_duration(wall)}"] if wall is not None else [])]


def _count(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def _settings_table(settings: Mapping[str, Any]) -> DataTable:
    flat = {path: value for path, (value, _) in changed_settings(settings, {}).items()}
    rows = [(path, str(flat[path])) for path in sorted(flat)]
    return DataTable(("setting", "value"), rows, num_text_columns=2, most=500)
