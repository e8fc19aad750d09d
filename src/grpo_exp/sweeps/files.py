"""The JSON files of a sweep's folder: the lock under which they are written, and how they are read.

Each is written as a whole, so what cannot be read was changed by something else.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.run_lock import Lock, OwnedError

_LOCK_POLL_SECONDS = 0.05
#: Writing a manifest of 1,000 points takes a fraction of a second; a lock whose owner is gone is taken away sooner.
_LOCK_SECONDS = 180.0


def parse_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object, or None where the text holds none."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def read_object(path: Path, fix: str) -> dict[str, Any]:
    """Return the object that a file holds.

    Args:
        path: The file.
        fix: What to do where it cannot be read.

    Raises:
        ConfigError: It holds no object.
    """
    found = parse_object(path.read_text())
    if found is None:
        raise ConfigError(f"{path}: is no JSON object, so something else has changed it; {fix}")
    return found


def read_objects(path: Path, fix: str) -> list[dict[str, Any]]:
    """Return the objects of a file with one on each line; blank lines count for nothing.

    Args:
        path: The file.
        fix: What to do where it cannot be read.

    Raises:
        ConfigError: A line holds no object.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip():
            record = parse_object(line)
            if record is None:
                raise ConfigError(f"{path}: line {number} is no JSON object, so something else has changed it; {fix}")
            found.append(record)
    return found


@contextlib.contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold a lock file, and wait for it while another process does.

    Args:
        path: The lock file; its folder must exist.

    Raises:
        RunError: The folder cannot be written, or another process holds the lock for minutes.
    """
    lock, deadline = Lock(path), time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            lock.acquire()
            break
        except OwnedError as error:
            if time.monotonic() > deadline:
                raise RunError(
                    f"{path}: another process has held it for {_LOCK_SECONDS:.0f} s, which takes one at most; end that "
                    "process, or remove the file"
                ) from error
            time.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()
