"""Programs with their children, in a process group of their own: whether one is left, and the end of all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_POLL_SECONDS = 0.05


def group_is_alive(group: int) -> bool:
    """Say whether a process group has a member that runs; one that nobody reaps is dead all the same."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX" and int(fields[2]) == group:
                return True
    return False


def end_group(leader: subprocess.Popen[bytes], signals: Sequence[signal.Signals], *, seconds: float) -> None:
    """Send a whole group one signal after another, until none of it is left.

    Args:
        leader: Its first process, started with `start_new_session=True`.
        signals: In this order; the last one should be SIGKILL.
        seconds: To wait after each.
    """
    for number in signals:
        try:
            os.killpg(leader.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + seconds
        while group_is_alive(leader.pid) and time.monotonic() < deadline:
            leader.poll()  # reaps it
            time.sleep(_POLL_SECONDS)
        if not group_is_alive(leader.pid):
            break
    leader.poll()
