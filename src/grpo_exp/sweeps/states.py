"""How the runs of a sweep stand: from result, lock and heartbeat in their folders, and what a scheduler says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.run_lock import read_owner
from grpo_exp.rundir import RunDirectory
from grpo_exp.sweeps.files import parse_object
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.tracking.metrics_log import MetricsRecord, parse_line

State = Literal["running", "queued", "missing", "cancelled", "stopped", "lost", "failed", "ended_by_rule", "completed"]

#: What a scheduler says about points: index -> its own word, such as PENDING; points it does not know are absent.
SchedulerView = Mapping[int, str]

#: States of a scheduler in which a point will be run without being asked for again (squeue's words).
QUEUED_WORDS = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"})
#: The scheduler runs it; its own process may not have begun.
RUNNING_WORDS = frozenset({"RUNNING", "COMPLETING"})

#: States of points that `resume`, and the same multirun command again, start.
TO_RESUME: frozenset[State] = frozenset({"missing", "cancelled", "stopped", "lost"})
#: Those that `retry` starts, too.
TO_RETRY: frozenset[State] = frozenset({*TO_RESUME, "failed", "ended_by_rule"})
#: Nobody works on these, and they are not done.
UNFINISHED: frozenset[State] = frozenset({*TO_RESUME, "queued", "running"})

_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class PointStatus:
    """One run of a sweep as it stands."""

    entry: Entry
    state: State
    attempt: int
    """Attempts so far; 0 where it was never started."""
    steps: int | None = None
    """Optimizer steps done; None where there are none to tell of."""
    reward: float | None = None
    """Mean reward of the last step."""
    reason: str | None = None
    """How it ended; the last error line of a failed one."""
    result: Mapping[str, Any] | None = None
    """The content of `result.json`."""
    scheduler: str | None = None
    """The scheduler's word."""


def read_statuses(sweep: SweepDirectory, view: SchedulerView | None = None) -> list[PointStatus]:
    """Return the states of all runs, in the order of the manifest.

    Args:
        sweep: The sweep.
        view: What a scheduler says; None where there is none.

    Raises:
        ConfigError: The folder holds no sweep.
    """
    return read_some(sweep, sweep.read_entries(), view)


def read_some(sweep: SweepDirectory, entries: Sequence[Entry], view: SchedulerView | None = None) -> list[PointStatus]:
    """Return the states of these runs; those that are in no manifest yet are missing."""
    cancelled = sweep.read_cancelled()
    words = {} if view is None else view
    return [read_status(sweep, entry, cancelled=cancelled, scheduler=words.get(entry.index)) for entry in entries]


def read_status(
    sweep: SweepDirectory, entry: Entry, *, cancelled: set[str], scheduler: str | None = None
) -> PointStatus:
    """Return the state of one run.

    Args:
        sweep: The sweep.
        entry: The run.
        cancelled: Run directories that are marked as cancelled.
        scheduler: The scheduler's word for it.
    """
    directory = sweep.run(entry)
    # The owner is asked first: a run that ends between the two questions has a result.
    owner = read_owner(directory.lock)
    if owner.state == "alive":
        return _with_last_step(directory, PointStatus(entry, "running", directory.attempt, scheduler=scheduler))
    attempt = directory.attempt
    refusal = _read_refusal(sweep, entry)
    try:
        result = directory.read_result()
    except ConfigError as error:  # one damaged file must not hide how the others stand
        result, refusal = None, refusal or str(error)
    state = _state_of(entry, result, attempt=attempt, is_cancelled=entry.run_directory in cancelled, refusal=refusal)
    if state != "completed" and scheduler is not None:
        state = _reconciled(state, scheduler)
    if result is not None and refusal is None:
        steps, reason = result["steps"], result["reason"]
        if result["exit_code"] == ExitCode.COMPLETED and not entry.is_done(result):
            reason = f"{steps} steps are done, and {entry.max_steps} are asked for now"
        return PointStatus(entry, state, attempt, steps, _last_reward(directory), reason, result, scheduler)
    reason = refusal if refusal is not None else "its process has ended without a result" if state == "lost" else None
    status = PointStatus(entry, state, attempt, reason=reason, scheduler=scheduler)
    return _with_last_step(directory, status) if attempt else status


def _state_of(
    entry: Entry, result: Mapping[str, Any] | None, *, attempt: int, is_cancelled: bool, refusal: str | None
) -> State:
    if refusal is not None:
        return "failed"
    if entry.is_done(result):
        return "completed"
    if result is not None and result["exit_code"] == ExitCode.ENDED_BY_RULE:
        return "ended_by_rule"
    if result is not None and result["status"] == "failed":
        return "failed"
    if is_cancelled:
        return "cancelled"
    if result is not None:
        return "stopped"
    return "lost" if attempt else "missing"


def _reconciled(state: State, word: str) -> State:
    """Correct a state by the scheduler's word: what waits or runs there is not to be started again."""
    if word in RUNNING_WORDS:
        return "running"
    return "queued" if word in QUEUED_WORDS and state != "cancelled" else state


def _read_refusal(sweep: SweepDirectory, entry: Entry) -> str | None:
    try:
        text = sweep.refusal(entry).read_text()
    except FileNotFoundError:
        return None
    return str((parse_object(text) or {}).get("reason", f"{sweep.refusal(entry)} cannot be read"))


def _with_last_step(directory: RunDirectory, status: PointStatus) -> PointStatus:
    record = read_last_step(directory.metrics)
    steps = None if record is None else record["step"]
    reward = None if record is None else record["metrics"].get("train/reward")
    return PointStatus(status.entry, status.state, status.attempt, steps, reward, status.reason,
                       scheduler=status.scheduler)  # fmt: skip


def _last_reward(directory: RunDirectory) -> float | None:
    record = read_last_step(directory.metrics)
    return None if record is None else record["metrics"].get("train/reward")


def read_last_step(metrics: Path) -> MetricsRecord | None:
    """Return the last training step of `metrics.jsonl`, reading its end only; None before the first."""
    try:
        with metrics.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        record = parse_line(line)
        if record is not None and "train/reward" in record["metrics"]:
            return record
    return None


def count_states(statuses: Sequence[PointStatus]) -> dict[State, int]:
    """Return how many runs are in each state that occurs, the most wanted first."""
    counts = Counter(status.state for status in statuses)
    order: tuple[State, ...] = (
        "completed", "running", "queued", "stopped", "missing", "lost", "cancelled", "ended_by_rule", "failed"
    )  # fmt: skip
    return {state: counts[state] for state in order if counts[state]}


def exit_code_of(statuses: Sequence[PointStatus]) -> int:
    """Return the exit code of a sweep: 1 if a run failed, else 85 if some are not done, else 3 or 0."""
    states = {status.state for status in statuses}
    if "failed" in states:
        return int(ExitCode.FAILED)
    if states & UNFINISHED:
        return int(ExitCode.RESUMABLE)
    return int(ExitCode.ENDED_BY_RULE if "ended_by_rule" in states else ExitCode.COMPLETED)
