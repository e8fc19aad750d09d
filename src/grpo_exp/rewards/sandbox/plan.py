"""What the launcher is told."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from grpo_exp.rewards.sandbox.interface import Limits

LAUNCHER = Path(__file__).with_name("launcher.py")
_OPEN_FILES = 128


def build_plan(
    command: Sequence[str], limits: Limits, *, report: int, folder: str, user: int | None, adopt: bool = False
) -> str:
    """Return the argument of the launcher.

    Args:
        command: The program and its arguments.
        limits: Those that the kernel enforces are set before the program starts.
        report: The descriptor for the launcher's report.
        folder: The throw-away folder.
        user: The user id that the program gets; None leaves it.
        adopt: There is no process namespace: take over what the program leaves behind, and kill it. A `user` keeps the
            right to read and write all files.
    """
    kernel_limits = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_FSIZE": limits.file_bytes,
        # The launcher counts too if it is the same user.
        "RLIMIT_NPROC": limits.num_processes + (user is None),
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    plan = {
        "command": list(command),
        "limits": kernel_limits,
        "report": report,
        "folder": folder,
        "user": user,
        "adopt": adopt,
        "environment": build_environment(folder),
    }
    return json.dumps(plan)


def build_environment(folder: str) -> dict[str, str]:
    """Return the environment of a program, which holds nothing of ours."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # the same program always gets the same score
        "OMP_NUM_THREADS": "1",
    }


def given_to(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor from which a child can read data; nothing reaches the disk. Closed with the stack."""
    descriptor = os.memfd_create("job")
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
