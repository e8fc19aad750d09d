"""`tracker.json`: how far each tracker's copy of the run has come, at each place that it was sent to.

Writers of several processes do not mix. A tracker's part is the state at the place that was written last, and below
`elsewhere` those at others: a run that was sent to a second server and goes on with the first one is one run in each.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from grpo_exp.rundir import RunDirectory, write_json

_ELSEWHERE = "elsewhere"


@dataclass
class CopyState:
    """What one tracker has of a run."""

    destination: str = ""
    """Where the data went."""
    ids: dict[str, str] = field(default_factory=dict)
    """What opens the same tracker run again."""
    attempt: int = 0
    """Attempt of the run that the settings were last sent for."""
    offset: int = 0
    """Bytes of `metrics.jsonl` that the tracker has."""
    last_line: str = ""
    """Hash of the line that ends at `offset`: whether the file is still the one that was sent."""
    last_length: int = 0
    """Bytes of that line."""
    events_offset: int = 0
    """Bytes of `events.jsonl` that were looked through."""
    rules: list[str] = field(default_factory=list)
    """Health findings that were told: rule, subject, severity and step of each."""
    tables: dict[str, str] = field(default_factory=dict)
    """Tables of completions that were sent: file name to size and time of the file."""
    files: dict[str, str] = field(default_factory=dict)
    """Other files that were sent: name to hash."""
    status: str | None = None
    """How the run ended, as it was told to the tracker; None while it goes on."""

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was ever sent there."""
        return self.attempt == 0

    def start_again(self) -> None:
        """Forget what was sent, and keep where and as what."""
        fresh = CopyState(self.destination, self.ids, self.attempt)
        self.__dict__.update(fresh.__dict__)

    def start_curves_again(self) -> None:
        """Forget what was sent of `metrics.jsonl`."""
        self.offset, self.last_line, self.last_length = 0, "", 0


class StateFile:
    """Reads and writes one tracker's part of `tracker.json`."""

    def __init__(self, directory: RunDirectory, name: str) -> None:
        self._directory = directory
        self._name = name

    def load(self, destination: str) -> CopyState:
        """Return what is known of a place; a fresh state with the latest ids where nothing was sent to it."""
        latest, elsewhere = self._parts()
        if latest.get("destination") == destination:
            return CopyState(**latest)
        if destination in elsewhere:
            return CopyState(**elsewhere[destination])
        return CopyState(destination, latest.get("ids", {}))

    def save(self, state: CopyState) -> None:
        """Write the state; the parts of other trackers and places stay."""
        with held(self._directory.tracker_lock("json"), wait=True):
            latest, elsewhere = self._parts()
            if latest:
                elsewhere[latest["destination"]] = latest
            elsewhere.pop(state.destination, None)
            part = {**asdict(state), **({_ELSEWHERE: elsewhere} if elsewhere else {})}
            write_json(self._directory.tracker, {**_read(self._directory.tracker), self._name: part})

    def _parts(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Return the state that was written last, and those at other places."""
        latest = dict(_read(self._directory.tracker).get(self._name, {}))
        return latest, latest.pop(_ELSEWHERE, {})


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    return {name: part for name, part in json.loads(path.read_text()).items() if isinstance(part, dict)}


@contextlib.contextmanager
def held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock file; say whether it could be got. The end of the process gives it free, too.

    On a file system that has no locks it is as if it were got: copying twice at once costs time, not data.
    """
    with path.open("a") as stream:
        yield _lock(stream, wait=wait)


def _lock(stream: IO[str], *, wait: bool) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
