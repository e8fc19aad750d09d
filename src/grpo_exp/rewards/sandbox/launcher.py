"""The first process inside a sandbox: sets the limits, starts the program, reports its end, and ends all the rest.

Runs alone inside (`python -I -S launcher.py JSON`), so it imports the standard library only. In a process namespace it
is process 1: nothing inside can kill it, and when it ends the kernel ends everything that is left, daemons included.
Without a namespace it adopts what its descendants leave behind, and kills that.

The report goes to a pipe that the program does not inherit, one line each: `started`, then `failed` with the reason or
`ended` with a JSON object.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAPABILITY_VERSION_3 = 0x20080522
#: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_FILE_CAPABILITIES = (1, 2)
_KILL_SECONDS = 5.0


class _ToldToEndError(Exception):
    """The one who started us has heard enough."""


def main() -> None:
    """Run the program that the first argument describes."""
    plan = json.loads(sys.argv[1])
    report = plan["report"]
    os.set_inheritable(report, False)
    if plan["adopt"]:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, _told_to_end)
    else:
        _prctl(_PR_SET_DUMPABLE, 0)  # a program with our user id could otherwise write our memory
    os.write(report, b"started\n")
    program = 0
    try:
        program = os.fork()
        if program == 0:
            _become_program(plan)
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(_wait_for(program))
    except _ToldToEndError:
        code = -signal.SIGKILL
    if plan["adopt"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_adopted(program)
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    os.write(report, b"ended " + json.dumps({"code": code, "peak_bytes": peak_kib * 1024}).encode() + b"\n")
    os._exit(0)


def _become_program(plan: dict[str, Any]) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if plan["user"] is not None:
            _change_user(plan["user"], keeps_files=plan["adopt"])
        for name, value in plan["limits"].items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # At the soft limit on CPU time comes SIGXCPU, which says why; SIGKILL a second later.
            above = 1 if kind == resource.RLIMIT_CPU and bounded != hard else 0
            resource.setrlimit(kind, (bounded, bounded + above))
        os.chdir(plan["folder"])
        os.execve(plan["command"][0], plan["command"], plan["environment"])
    except BaseException as error:
        os.write(plan["report"], f"failed {error!r}".replace("\n", " ").encode() + b"\n")
    finally:
        os._exit(127)


def _change_user(user: int, *, keeps_files: bool) -> None:
    """Become another user; on request with root's right to read and write all files, here and after execve."""
    if keeps_files:
        _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if keeps_files:
        bits = sum(1 << number for number in _FILE_CAPABILITIES)
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        # Effective, permitted, inheritable; then the same for numbers above 31.
        sets = (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
        if ctypes.CDLL(None, use_errno=True).capset(header, sets) != 0:
            raise OSError(ctypes.get_errno(), "capset")
        for number in _FILE_CAPABILITIES:
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number)


def _told_to_end(_signal: int, _frame: object) -> NoReturn:
    raise _ToldToEndError


def _wait_for(program: int) -> int:
    """Collect ended processes until the program is among them."""
    while True:
        process, status = os.wait()
        if process == program:
            return status


def _kill_adopted(program: int) -> None:
    """Kill what is left below us until nothing is; what a killed process leaves behind comes to us next."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):  # nobody may be left in the group
            if program:
                os.killpg(program, signal.SIGKILL)  # all of a fork bomb at once: it cannot outrun this
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123 - a fast start counts
            left = file.read().split()
        if not left:
            return
        for process in left:
            os.kill(int(process), signal.SIGKILL)
        for _ in left:
            os.wait()


def _prctl(option: int, *values: int) -> None:
    arguments = [ctypes.c_ulong(number) for number in (*values, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), *arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


if __name__ == "__main__":
    main()
