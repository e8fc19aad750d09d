"""What is printed of a plan before anything starts, and of one that cannot be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_exp.reporting.columns import format_duration
from grpo_exp.sweeps.held import describe_held
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.sweeps.planning import Plan, describe_values
from grpo_exp.sweeps.rules import SweepRules
from grpo_exp.sweeps.states import TO_RESUME, PointStatus, count_states

#: More causes than these are not read; the first ones are corrected first.
_MAX_CAUSES = 20
#: Points that are named beside a reason.
_NUM_EXAMPLES = 2
#: A learning rate this many times away from the model's own is one that was meant for another model.
_FAR = 10.0


def describe_faults_by_cause(plan: Plan, size: int) -> list[str]:
    """Return one message for each cause, with the number of points that it concerns."""
    if not plan.faults:
        lines = [f"none of the {size} points is left: every one of them is skipped; change hydra.sweeper or the axes"]
        return lines + _skipped(plan)
    causes = [f"{fault}{_where(values, size)}" for fault, values in plan.faults.items()]
    if len(causes) > _MAX_CAUSES:
        more = len(causes) - _MAX_CAUSES
        causes = [*causes[:_MAX_CAUSES], f"... and {more} more causes; correct these first"]
    return causes


def _where(values: Sequence[Mapping[str, Any]], size: int) -> str:
    if size == 1:
        return ""
    if len(values) == size:
        return f" (all {size} points)"
    return f" ({len(values)} of {size} points: {_examples(values)})"


def _examples(values: Sequence[Mapping[str, Any]]) -> str:
    more = ", ..." if len(values) > _NUM_EXAMPLES else ""
    return ", ".join(describe_values(value) for value in values[:_NUM_EXAMPLES]) + more


def describe_plan(
    sweep: SweepDirectory,
    plan: Plan,
    rules: SweepRules,
    *,
    statuses: Sequence[PointStatus],
    num_others: int,
) -> list[str]:
    """Return the lines of a plan.

    Args:
        sweep: The sweep.
        plan: Without faults.
        rules: Constraints.
        statuses: How the points of the plan stand.
        num_others: Points of the sweep that earlier calls asked for, and this one not.
    """
    settings = [point.settings.model_dump(mode="json") for point in plan.points]
    ids = {point.point_id for point in plan.points}
    seeds = sorted({point.settings.seed for point in plan.points})
    lines = [
        f"sweep      {sweep.path}",
        f"points     {_count(len(plan.points), 'run')}: {_count(len(ids), 'point')}, seeds {_seeds(seeds)}",
        *_skipped(plan),
    ]
    held = describe_held(rules, settings)
    if held is not None:
        lines.append(f"held       {held}")
    if num_others:
        lines.append(
            f"others     {num_others} runs of other calls lie in this sweep, too, and are left as they are; give this "
            "one a folder of its own with name=NAME"
        )
    states = count_states(statuses)
    if set(states) != {"missing"}:
        lines.append(f"states     {', '.join(f'{number} {state}' for state, number in states.items())}")
    if "failed" in states:
        lines.append(f"note       failed ones are run again by grpo-exp sweep retry {sweep.path}")
    lines += [f"note       {note}" for note in _rate_notes(settings, rules)]
    lines.append(f"cost       {estimate(statuses)}")
    return lines


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds)) if len(seeds) <= 10 else f"{seeds[0]} to {seeds[-1]} ({len(seeds)} of them)"


def _skipped(plan: Plan) -> list[str]:
    reasons: dict[str, list[Mapping[str, Any]]] = {}
    for skipped in plan.skipped:
        reasons.setdefault(skipped.reason, []).append(skipped.values)
    return [f"skipped    {len(values)}: {reason} ({_examples(values)})" for reason, values in reasons.items()]


def _rate_notes(settings: Sequence[Mapping[str, Any]], rules: SweepRules) -> list[str]:
    """Say where none of the learning rates is near the one that the model's file gives."""
    notes = []
    for kind, own in sorted({(each["model"]["kind"], each["model"]["learning_rate"]) for each in settings}):
        mine = [each for each in settings if (each["model"]["kind"], each["model"]["learning_rate"]) == (kind, own)]
        rates = sorted({each["trainer"]["learning_rate"] for each in mine})
        if any(own / _FAR < rate < own * _FAR for rate in rates):
            continue
        given = f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"
        better = f"; use +sweeps={rules.instead[kind]}" if kind in rules.instead else "; sweep rates around that"
        notes.append(f"trainer.learning_rate={given} does not suit model={kind}, whose own is {own:g}{better}")
    return notes


def estimate(statuses: Sequence[PointStatus]) -> str:
    """Say how long the points that are left take, from those that are done."""
    done = [s.result["wall_seconds"] for s in statuses if s.result is not None and s.state == "completed"]
    left = sum(status.state in TO_RESUME for status in statuses)
    if not left:
        return "nothing is left to run"
    if not done:
        return f"{_count(left, 'run')}; how long they take is known once one of them is done"
    mean = sum(done) / len(done)
    return (
        f"{_count(left, 'run')} x {format_duration(mean)} (mean of {len(done)} that are done) = "
        f"{format_duration(left * mean)} of run time, shared by those that run at the same time"
    )
