"""Send to a run's trackers what they lack: after an outage, from a node that has a network, or to other trackers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from grpo_exp.errors import ExitCode
from grpo_exp.run_lock import read_owner
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.tracking.build import active_trackers
from grpo_exp.tracking.copy_state import held
from grpo_exp.tracking.copying import RunCopy, describe
from grpo_exp.tracking.tracker import RunStatus


@dataclass(frozen=True)
class SyncOutcome:
    """What became of one tracker's copy."""

    tracker: str
    state: Literal["sent", "complete", "busy", "failed"]
    text: str


def sync_run(directory: RunDirectory, settings: RunSettings, trackers: TrackerSettings) -> Iterator[SyncOutcome]:
    """Bring the copies of a run up to date, one tracker after the other; what is there already is not sent again.

    Args:
        directory: The run; it may be going on, its status is left alone then.
        settings: Of the run.
        trackers: Where to send it.
    """
    status, ended = status_of(directory)
    for name in active_trackers(trackers):
        with held(directory.tracker_lock(name), wait=False) as is_ours:
            if is_ours:
                yield _sync_one(RunCopy(directory, settings, name, trackers=trackers), name, status, ended)
            else:
                text = "a process feeds it just now, so it gets everything from there; try again when the run has ended"
                yield SyncOutcome(name, "busy", text)


def _sync_one(copy: RunCopy, name: str, status: RunStatus | None, ended: float) -> SyncOutcome:
    try:
        if not copy.lacks(status):
            return SyncOutcome(name, "complete", "has everything")
        copy.finish(status, ended)
    # Whatever a backend raises is told, and costs the other trackers and runs nothing.
    except (Exception, SystemExit) as error:
        copy.abandon()
        return SyncOutcome(name, "failed", f"{describe(error)}; look at the settings under tracker, and try again")
    damaged = f"; damaged and left out: {', '.join(copy.unreadable)}" if copy.unreadable else ""
    return SyncOutcome(name, "sent", f"{copy.num_records} records sent, status {status or 'running'}{damaged}")


def status_of(directory: RunDirectory) -> tuple[RunStatus | None, float]:
    """Return how a run ended and when (unix seconds); None while somebody alive owns it.

    A run that has neither a result nor an owner was killed.
    """
    owner = read_owner(directory.lock)
    result = directory.read_result()
    last = max(path.stat().st_mtime for path in (directory.config_json, directory.metrics) if path.exists())
    if result is None:
        return (None if owner.state == "alive" else "killed"), last
    return _status_in(result), directory.result.stat().st_mtime


def _status_in(result: dict[str, Any]) -> RunStatus:
    return "ended_by_rule" if result["exit_code"] == ExitCode.ENDED_BY_RULE else result["status"]
