"""What a sweep supports, in sentences that can be quoted, and what it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from grpo_exp.reporting.report.analysis import ALPHA, Analysis, Comparison, Effect, PointSummary
from grpo_exp.reporting.report.sweep_data import Axis, SweepData, SweepPoint, shown
from grpo_exp.sweeps.states import count_states

#: Metrics of which nobody doubts that more is better.
_MORE_IS_BETTER = re.compile(r"accuracy$|^train/reward$|^train/rewards/.+/mean$|/(mean|pass|maj)_at_\d+$")
#: Points that are named one by one; the table has all of them.
_MOST_NAMED = 5


def write_sentences(data: SweepData, analysis: Analysis) -> list[str]:
    """Return the findings of a sweep, the most important ones first."""
    best = analysis.best
    if best is None:
        is_done = any(status.state == "completed" for status in data.statuses)
        instead = "; --metric=train/reward judges by a curve" if is_done and "/" not in analysis.metric else ""
        return [
            *_states(data, analysis),
            f"No run has a value of {analysis.metric} yet, so nothing is compared{instead}.",
        ]
    lines = [*_states(data, analysis)]
    if not analysis.can_rank:
        return [*lines, *_why_no_ranking(data, analysis)]
    if not _MORE_IS_BETTER.search(analysis.metric):
        lines.append(
            f"More of {analysis.metric} is called better here; where less of it is better, read the sentences, the "
            "order of the points and the Pareto sets the other way round."
        )
    for axis in data.axes:
        lines += _axis(axis, [effect for effect in analysis.effects if effect.axis == axis])
    lines += _against_best(best, analysis)
    return lines


def _states(data: SweepData, analysis: Analysis) -> list[str]:
    runs = len(data.statuses)
    used = sum(len(summary.values) for summary in analysis.summaries)
    counts = count_states(data.statuses)
    if used == runs:
        return [f"All {runs} runs have a value of {analysis.metric}."]
    told = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in counts.items())
    unmeasured = counts.get("completed", 0) - used
    if unmeasured > 0:
        told += f"; {unmeasured} completed without having measured it"
    lines = [
        f"{used} of {runs} runs have a value of {analysis.metric} ({told}). The others are listed below and are in no "
        "mean."
    ]
    flattered = [
        summary for summary in analysis.summaries
        if summary.values and (summary.point.states["failed"] or summary.point.states["ended_by_rule"])
    ]  # fmt: skip
    if flattered:
        named = "; ".join(summary.point.label for summary in flattered[:_MOST_NAMED])
        points = "1 point" if len(flattered) == 1 else f"{len(flattered)} points"
        lines.append(f"Of {points} only the runs that came to their end count, which may flatter: {named}.")
    return lines


def _why_no_ranking(data: SweepData, analysis: Analysis) -> list[str]:
    most = max(len(summary.values) for summary in analysis.summaries)
    with_value = sum(bool(summary.values) for summary in analysis.summaries)
    if with_value < 2:
        return ["Only one point has a value, so there is nothing to compare."]
    if most < 2:
        return [
            "One seed: what differs between two runs may be the seed alone, so nothing is ranked here. "
            "More seeds of the same sweep (seed=0,1,2) make it a comparison."
        ]
    if len(data.seeds) < 2 or not any(len(set(summary.values)) > 1 for summary in analysis.summaries):
        return ["The seeds of each point agree to the last digit, so the noise is not known and nothing is ranked."]
    if any(len(summary.values) > 1 for summary in analysis.summaries) and _some_share_two_seeds(data, analysis):
        return [
            "Points differ by the same amount in every seed, to the last digit, so the noise of a comparison is not "
            "known and nothing is ranked."
        ]
    return ["No two points share two seeds, so the noise of a comparison is not known and nothing is ranked."]


def _some_share_two_seeds(data: SweepData, analysis: Analysis) -> bool:
    has_value = ~np.isnan(data.table(analysis.metric))
    shared = has_value.astype(int) @ has_value.T.astype(int)
    return bool((shared[np.triu_indices(len(shared), k=1)] >= 2).any())


def _axis(axis: Axis, effects: Sequence[Effect]) -> list[str]:
    if not effects:
        return [f"{axis.title}: no two points differ in it alone and share a seed, so its effect cannot be told apart."]
    supported = [effect for effect in effects if effect.is_supported]
    if all(effect.contrast.difference == 0 for effect in effects):
        return [
            f"{axis.title}: its values make no difference to the last digit, so it had no effect here (grpo-exp check "
            "tells settings that have none)."
        ]
    if supported:
        told = [_supported_effect(effect) for effect in sorted(supported, key=lambda e: -abs(e.contrast.difference))]
        return [*told, *_unsupported_rest(axis, [effect for effect in effects if not effect.is_supported])]
    largest = max(effects, key=lambda effect: abs(effect.contrast.difference))
    low, high = largest.contrast.interval()
    first, second = _level(largest.first), _level(largest.second)
    return [
        f"{axis.title}: the seeds support no difference between its values. The largest seen is {second} against "
        f"{first}, {largest.contrast.difference:+.3f} (95 % interval of this one alone {low:+.3f} to {high:+.3f})."
    ]


def _unsupported_rest(axis: Axis, effects: Sequence[Effect]) -> list[str]:
    if not effects:
        return []
    pairs = ", ".join(
        f"{_level(e.second)} against {_level(e.first)} ({e.contrast.difference:+.3f})" for e in effects[:_MOST_NAMED]
    )
    more = ", ..." if len(effects) > _MOST_NAMED else ""
    return [f"{axis.title}: no difference is supported for {pairs}{more}."]


def _supported_effect(effect: Effect) -> str:
    contrast = effect.contrast
    better, worse = (effect.second, effect.first) if contrast.difference > 0 else (effect.first, effect.second)
    low, high = sorted(end if contrast.difference > 0 else -end for end in contrast.interval())
    return (
        f"{effect.axis.title}: {_level(better)} is better than {_level(worse)} by {abs(contrast.difference):.3f}, "
        f"the mean over what else is swept (95 % interval {low:.3f} to {high:.3f}, {_p(effect.adjusted)}, "
        f"{contrast.num_pairs} pairs of runs)."
    )


def _against_best(best: PointSummary, analysis: Analysis) -> list[str]:
    assert best.mean is not None
    lines = [f"The highest mean is {best.mean:.3f}: {best.point.label} ({_seeds(len(best.values))})."]
    means = {summary.point.index: summary.mean for summary in analysis.summaries}
    with_best = [c for c in analysis.comparisons if best.point in (c.first, c.second)]
    better = [c for c in with_best if c.is_supported and _is_better(best, c)]
    worse = [c for c in with_best if c.is_supported and not _is_better(best, c)]
    not_told = sorted((c for c in with_best if not c.is_supported), key=lambda c: abs(c.contrast.difference))
    if better:
        lines.append(
            f"The seeds support that it is better than {len(better)} of the {len(with_best)} points it can be "
            "compared with."
        )
    if worse:  # it has other seeds than they have, and easier ones
        named = "; ".join(_other_of(comparison, best).label for comparison in worse[:_MOST_NAMED])
        lines.append(
            f"In the seeds that they share it is worse than {len(worse)} of them, which the seeds support: {named}. "
            "Its mean is the highest because it has no value in the other seeds."
        )
    if not_told:
        others = [_other(comparison, best, means) for comparison in not_told[:_MOST_NAMED]]
        left = len(not_told) - _MOST_NAMED
        more = f", nor from {left} further point{'s' if left > 1 else ''}" if left > 0 else ""
        seeds = _seeds(max(comparison.contrast.num_pairs for comparison in not_told))
        lines.append(f"{seeds} cannot tell {best.mean:.3f} from {', '.join(others)}{more}.")
    return lines


def _other(comparison: Comparison, best: PointSummary, means: Mapping[int, float | None]) -> str:
    other = _other_of(comparison, best)
    fewer = (
        "" if comparison.contrast.num_pairs >= len(best.values) else f", {_seeds(comparison.contrast.num_pairs)} shared"
    )
    return f"{means[other.index]:.3f} ({other.label}{fewer}; {_p(comparison.adjusted)})"


def _other_of(comparison: Comparison, best: PointSummary) -> SweepPoint:
    return comparison.second if comparison.first == best.point else comparison.first


def _is_better(best: PointSummary, comparison: Comparison) -> bool:
    return (comparison.contrast.difference > 0) == (comparison.second == best.point)


def _level(level: Sequence[object]) -> str:
    return " & ".join(shown(value) for value in level)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _p(adjusted: float) -> str:
    return "p below 0.001 corrected" if adjusted < 0.001 else f"p {adjusted:.3f} corrected"


def method(analysis: Analysis) -> str:
    """Say how the comparisons were made, in a paragraph."""
    tests = len(analysis.effects) + len(analysis.comparisons)
    return (
        "Intervals of points are Student's over their seeds. Comparisons are paired by seed; the noise of a point is "
        "estimated from its own runs and, as far as the points' noise agrees, from those of all points; p-values are "
        f"corrected by Holm for {tests} comparisons, so that of sweeps in which nothing matters at most {ALPHA:.0%} "
        "are said to have an effect. 'Cannot tell' is no proof that two points are equal. Held-out prompts are the "
        "same for all points of a seed, so the intervals are about training again, not about other prompts."
    )
