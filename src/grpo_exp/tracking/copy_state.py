"""`tracker.json`: how far each tracker's copy of the run has come. Writers of several processes do not mix."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from grpo_exp.rundir import RunDirectory, write_json


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
    """Health rules that were told."""
    tables: dict[str, str] = field(default_factory=dict)
    """Tables of completions that were sent: file name to size and time of the file."""
    files: dict[str, str] = field(default_factory=dict)
    """Other files that were sent: name to hash."""
    status: str | None = None
    """How the run ended, as it was told to the tracker; None while it goes on."""

    def start_again(self) -> None:
        """Forget what was sent, and keep where and as what."""
        fresh = CopyState(self.destination, self.ids)
        self.__dict__.update(fresh.__dict__)

    def start_curves_again(self) -> None:
        """Forget what was sent of `metrics.jsonl`."""
        self.offset, self.last_line, self.last_length = 0, "", 0


class StateFile:
    """Reads and writes one tracker's part of `tracker.json`."""

    def __init__(self, directory: RunDirectory, name: str) -> None:
        self._directory = directory
        self._name = name

    def load(self) -> CopyState:
        """Return what is known; an empty state for a tracker that has got nothing."""
        return CopyState(**_read(self._directory.tracker).get(self._name, {}))

    def save(self, state: CopyState) -> None:
        """Write the state; the parts of other trackers stay."""
        with held(self._directory.tracker_lock("json"), wait=True):
            write_json(self._directory.tracker, {**_read(self._directory.tracker), self._name: asdict(state)})


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
