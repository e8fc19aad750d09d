"""What every tracker backend does. A tracker is a copy of `metrics.jsonl`; nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from grpo_exp.tracking.metrics_log import MetricsRecord

RunStatus = Literal["completed", "stopped", "failed"]

#: Name of the thread that a backend runs in; backends use it to keep their libraries' messages apart.
TRACKER_THREAD_NAME = "grpo-exp-tracker"


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
    """The run directory; a backend that writes files writes them below it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Labels to filter by. The tag `group` also puts the runs of one sweep into one W&B group."""
    previous_ids: Mapping[str, str] = field(default_factory=dict)
    """What `start` returned in the first attempt; empty for a new run."""

    @property
    def title(self) -> str:
        """Name and id: what the tracker shows."""
        return f"{self.name}/{self.run_id}"


class Tracker(Protocol):
    """A backend. `start` is called first and once, then `log`, then `finish`; all from one thread."""

    name: str
    """How messages call the backend, such as `MLflow`."""

    def start(self, info: RunInfo) -> dict[str, str]:
        """Open a new run, or the one that `info.previous_ids` names.

        Returns:
            Ids to keep in `tracker.json`, with which a later attempt goes on in the same tracker run.
        """
        ...

    def log(self, record: MetricsRecord) -> None:
        """Copy one record. The x axis is the record's optimizer step."""
        ...

    def finish(self, status: RunStatus) -> None:
        """Mark the run as ended and let go of the backend.

        Also called after a `start` or `log` that failed: then it closes what was opened, if anything was.
        """
        ...

    def open_command(self) -> str:
        """Return the one shell command that shows the curves; it can be asked for at any time."""
        ...
