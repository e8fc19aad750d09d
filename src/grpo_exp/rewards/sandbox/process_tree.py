"""The processes below one process and their memory, as Linux tells it in /proc.

Processes come and go while one looks: one that is gone counts nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_GONE = (FileNotFoundError, ProcessLookupError)


def is_readable() -> bool:
    """Tell whether this kernel lists the children of a process (CONFIG_PROC_CHILDREN)."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()


def children(process: int) -> list[int]:
    """Return the ids of a process's children, those of all its threads."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208 - twice as fast, and this runs 20 times a second
    except _GONE:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{process}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += [int(child) for child in file.read().split()]
        except _GONE:
            continue
    return found


def descendants(process: int) -> list[int]:
    """Return the ids of all processes below one, parents before children."""
    found = children(process)
    for child in found:  # grows while it is read
        found += children(child)
    return found


def memory_bytes(processes: list[int]) -> int:
    """Return the memory of processes without files, in bytes; a page that several share counts once for each."""
    return sum(_own_bytes(process) for process in processes)


def shared_fairly_bytes(processes: list[int]) -> int:
    """Return the memory of processes in bytes, with each shared page divided among those that share it.

    Exact and slow: the kernel walks the page tables.
    """
    return sum(_proportional_bytes(process) for process in processes)


def kill(process: int, *, parent: int) -> None:
    """Kill a process if it is still the child of its parent, and not another one that got its number."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if process in children(parent):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself, which is what we want
    finally:
        os.close(descriptor)


def _own_bytes(process: int) -> int:
    try:
        with open(f"/proc/{process}/status", "rb") as file:  # noqa: PTH123
            # Shared memory without a file counts too: it belongs to nobody else.
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith((b"RssAnon:", b"RssShmem:")))
    except _GONE:
        return 0


def _proportional_bytes(process: int) -> int:
    try:
        with open(f"/proc/{process}/smaps_rollup", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except PermissionError:  # a process that hides its memory even from us
        return _own_bytes(process)
    except _GONE:
        pass
    return 0
