"""Free ports of a run: `python -m grpo_exp.ports NAME ...` prints one for each name, on one line.

Where to look comes from the ids of job and task, or from the run, so that two of them on one node look in different
places; what is found is probed on all interfaces. So the command must run on the node that will listen.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence

from grpo_exp.errors import RunError

#: Below Linux's ephemeral ports (from 32768 on), so that no outgoing connection sits on one by accident.
FIRST, COUNT = 20_000, 12_000


def ids_of_job(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what tells a task of SLURM from others; an id that is missing counts as empty."""
    keys = ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")
    return tuple(environ.get(key, "") for key in keys)


def candidates(name: str, ids: Sequence[str]) -> Iterator[int]:
    """Yield all ports, in an order that name and ids decide.

    Args:
        name: What the port is for.
        ids: What tells this task or run from others on the node.
    """
    start = int.from_bytes(hashlib.sha256("/".join([*ids, name]).encode()).digest()[:8], "big") % COUNT
    for number in range(COUNT):
        yield FIRST + (start + number) % COUNT


def find_ports(names: Sequence[str], ids: Sequence[str]) -> list[int]:
    """Return a port that is free now for each name, all different.

    Raises:
        RunError: None is free.
    """
    found: list[int] = []
    for name in names:
        port = next((port for port in candidates(name, ids) if port not in found and is_free(port)), None)
        if port is None:
            raise RunError(f"none of the ports {FIRST} to {FIRST + COUNT - 1} is free; end what listens on this node")
        found.append(port)
    return found


def is_free(port: int) -> bool:
    """Say whether a server could listen on a port of all interfaces now."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


if __name__ == "__main__":
    print(*find_ports(sys.argv[1:], ids_of_job(os.environ)))
