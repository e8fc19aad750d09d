"""What every tracker does. A tracker is a copy of the run directory; nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from grpo_exp.tracking.metrics_log import MetricsRecord
from grpo_exp.tracking.tables import CompletionsTable

#: `killed`: nobody could say any more how it ended. `ended_by_rule`: a health rule stopped it.
RunStatus = Literal["completed", "stopped", "ended_by_rule", "failed", "killed"]


@dataclass(frozen=True)
class RunInfo:
    """What a tracker knows about a run when it starts."""

    name: str
    """Name that a person gave to the run, such as `dapo-math`."""
    run_id: str
    """Id of the run directory, such as `1f3a9c2e-s0`."""
    config: Mapping[str, Any]
    """The resolved settings, nested."""
    directory: Path
    """The run directory; a tracker that writes files writes them below it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Labels to filter by. The tag `group` also puts the runs of one sweep into one W&B group."""
    previous_ids: Mapping[str, str] = field(default_factory=dict)
    """What `start` returned the last time; empty for a new run."""
    is_fresh: bool = False
    """Whether nothing is known to have been sent there, so that all of it comes."""

    @property
    def title(self) -> str:
        """Name and id: what the tracker shows."""
        return f"{self.name}/{self.run_id}"


def subject_of(event: Mapping[str, Any]) -> list[str]:
    """Return rule and subject of a finding; the rule alone where it is about one thing only."""
    return [event["rule"], *([event["subject"]] if event.get("subject") else [])]


class Tracker(Protocol):
    """One backend. `start` is called first, then the others in any order, then `finish`; all from one thread.

    Each call may raise whatever the backend raises; what was not sent is then sent again, after another `start` of
    a new object. So all of them can be repeated without harm.
    """

    title: str
    """How messages call the backend, such as `MLflow`."""
    destination: str
    """Where the data go, without secrets. Another destination has got nothing yet."""
    confirms_at_finish: bool
    """Whether what was sent is safe only after `finish`; otherwise it is when the call returns."""

    alerts_leave_at_once: bool
    """Whether `alert` may have reached a person when it returns: such a one is not repeated, whatever fails then."""

    def start(self, info: RunInfo) -> dict[str, str]:
        """Open a new run, or the one that `info.previous_ids` names, and send settings and tags.

        Returns:
            Ids to keep in `tracker.json`, with which the next start goes on in the same tracker run.
        """
        ...

    def forget(self) -> bool:
        """Drop what was sent, where it can be: the run's curves have changed, and come again from the first.

        Returns:
            Whether all is gone, so that everything else has to come again, too. Other backends keep what they have;
            there what is sent last counts.
        """
        ...

    def log(self, records: Sequence[MetricsRecord]) -> None:
        """Copy records. The x axis is the record's optimizer step."""
        ...

    def alert(self, event: Mapping[str, Any]) -> None:
        """Copy a finding: an event with `kind` (info, warning, critical), `rule`, `step` and `text`."""
        ...

    def add_table(self, table: CompletionsTable) -> None:
        """Copy a table of completions, where the backend shows tables."""
        ...

    def add_file(self, path: Path) -> None:
        """Copy a file that lies in the run directory."""
        ...

    def finish(self, status: RunStatus | None, ended: float) -> None:
        """Let go of the run.

        Also called after a fault: then it closes what was opened, if anything was.

        Args:
            status: How the run ended, to be shown; None where it goes on.
            ended: Unix time in seconds at which it ended.
        """
        ...

    def open_command(self, ids: Mapping[str, str]) -> str:
        """Return the one shell command that shows the curves of the run that `start` gave these ids."""
        ...
