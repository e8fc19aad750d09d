"""Programs in namespaces of their own, on bubblewrap (the Debian package `bubblewrap`, 0.8 or newer).

Inside there is no network, no process of the host, no file but the system's programs (read-only) and an empty folder in
memory that is HOME and `/tmp` too, and an environment of six fixed variables. A program runs without rights: as root we
give it a user id of its own, since the kernel does not count the processes of root; everybody else gets a user
namespace, in which the kernel counts the processes by itself (Linux 5.14 or newer).

What bounds memory: the kernel bounds the address space of each process and the size of the folder; `local_session`
looks at the resident memory of all processes together fifty times a second. A program that allocates on several cores
at once can go beyond the limit by what it can write in that time, some tens of megabytes for each core.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from grpo_exp.rewards.sandbox import process_tree
from grpo_exp.rewards.sandbox.interface import Job, Limits, Outcome, SandboxError
from grpo_exp.rewards.sandbox.interpreter import Interpreter, read_interpreter
from grpo_exp.rewards.sandbox.local_session import Launch, LocalSession
from grpo_exp.rewards.sandbox.own_user import own_user
from grpo_exp.rewards.sandbox.plan import LAUNCHER, build_plan, given_to
from grpo_exp.rewards.sandbox.syscall_filter import build_filter, is_known_machine

_PROGRAM = "bwrap"
_OLDEST = (0, 8)
_FOLDER, _FILES = "/box", "/job"
_USER_ID = 1000


class BubblewrapSandbox:
    """A `Sandbox` on bubblewrap.

    Args:
        python: The interpreter that runs the programs; its installation is visible to them. None is the one that runs
            this, without its virtual environment.
    """

    def __init__(self, python: str | None = None) -> None:
        self._python = python

    def run(self, job: Job, stdin: bytes, limits: Limits) -> Outcome:
        """Run a program to its end; see `interface.Sandbox`."""
        return self.start(job, limits).run(stdin)

    def start(self, job: Job, limits: Limits) -> LocalSession:
        """Start a program to talk to; see `interface.Sandbox`."""
        with ExitStack() as stack:
            ours, theirs = os.pipe()
            stack.callback(os.close, theirs)
            try:
                launch = self._launch(job, limits, report=theirs, stack=stack)
                return LocalSession(launch, ours, limits)
            except BaseException:
                os.close(ours)
                raise

    def faults(self) -> list[str]:
        """Return what keeps this sandbox from working here, with the fix; empty when a program ran."""
        found = list(_missing())
        if found:
            return found
        try:
            job = Job("probe.py", {"probe.py": "print('alive')"})
            outcome = self.run(job, b"", Limits(20, 10, 2**29, 16, 2**20, 2**12))
        except SandboxError as error:
            return [_forbidden(str(error))]
        if outcome.stdout != b"alive\n":
            return [f"sandbox=bubblewrap: a program of one line ended with {outcome}; try another python"]
        return []

    @cached_property
    def _interpreter(self) -> Interpreter:
        return read_interpreter(self._python)

    def _launch(self, job: Job, limits: Limits, *, report: int, stack: ExitStack) -> Launch:
        user = own_user()
        plan = build_plan(
            [*self._interpreter.command, f"{_FILES}/{job.main}"], limits, report=report, folder=_FOLDER, user=user
        )
        texts = {f"{_FILES}/{path}": text for path, text in job.files.items()}
        texts |= {f"{_FILES}/.launcher.py": LAUNCHER.read_text(encoding="utf-8")}
        inherited = {path: given_to(stack, text.encode(errors="surrogatepass")) for path, text in texts.items()}
        syscalls = given_to(stack, build_filter())
        arguments = [*_isolation(user), *_system(self._interpreter), *_folders(limits, self._interpreter)]
        for path, descriptor in inherited.items():
            arguments += [*_parents(path), "--perms", "0444", "--ro-bind-data", str(descriptor), path]
        arguments += ["--remount-ro", "/", "--chdir", "/", "--seccomp", str(syscalls)]
        command = [*self._interpreter.launcher_command, f"{_FILES}/.launcher.py", plan]
        return Launch(
            command=[_PROGRAM, *arguments, "--", *command],
            environment={"PATH": os.environ.get("PATH", os.defpath)},
            report=report,
            inherited=[*inherited.values(), syscalls],
            has_namespace=True,
        )


def _isolation(user: int | None) -> list[str]:
    arguments = [
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--as-pid-1", "--die-with-parent", "--hostname", "sandbox", "--clearenv", "--cap-drop", "ALL",
    ]  # fmt: skip
    if user is None:
        return [*arguments, "--unshare-user", "--uid", str(_USER_ID), "--gid", str(_USER_ID)]
    # The launcher changes to the user and loses both with that.
    return [*arguments, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def _system(interpreter: Interpreter) -> list[str]:
    """Show the system's programs and the interpreter, nothing else of the host."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        folder = Path("/", name)
        if folder.is_symlink():
            arguments += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            arguments += ["--ro-bind", str(folder), str(folder)]
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime"):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for folder in interpreter.folders:
        arguments += [*_parents(folder), "--ro-bind", folder, folder]
    return arguments


def _parents(path: str) -> list[str]:
    """Make the folders above a path; bubblewrap itself would make some that only root can enter."""
    return [word for folder in reversed(Path(path).parents[:-1]) for word in ("--perms", "0755", "--dir", str(folder))]


def _folders(limits: Limits, interpreter: Interpreter) -> list[str]:
    size = str(limits.file_bytes)
    # A Python that lies in /tmp is there already, read-only; TMPDIR names the folder to write to in any case.
    in_tmp = any(Path(folder).is_relative_to("/tmp") for folder in interpreter.folders)
    tmp = [] if in_tmp else ["--symlink", _FOLDER.removeprefix("/"), "/tmp"]
    return [
        "--proc", "/proc",
        "--dev", "/dev",
        "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm",
        "--remount-ro", "/dev",
        "--perms", "0777", "--size", size, "--tmpfs", _FOLDER,
        *tmp,
    ]  # fmt: skip


def _missing() -> Iterator[str]:
    if sys.platform != "linux" or not is_known_machine():
        yield (
            f"sandbox=bubblewrap: this is {sys.platform} on {platform.machine()}, and it needs Linux on x86_64 or "
            "aarch64; run there, or choose sandbox=unsafe_subprocess for programs that you trust"
        )
        return
    if not process_tree.is_readable():
        yield "sandbox=bubblewrap: the kernel lacks /proc/PID/task/PID/children; use one with CONFIG_PROC_CHILDREN"
    if shutil.which(_PROGRAM) is None:
        yield (
            "sandbox=bubblewrap: there is no program bwrap in PATH, and it isolates the programs; install the Debian "
            "package `bubblewrap` (apt-get install bubblewrap), or ask the cluster's administrators for it"
        )
        return
    version = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = tuple(map(int, re.findall(r"\d+", version)))
    if numbers[:2] < _OLDEST:
        yield (
            f"sandbox=bubblewrap: bwrap here is {version.strip() or 'of an unknown version'}, and it needs 0.8 or "
            "newer (Debian 12, Ubuntu 24.04); install a newer one and put it first in PATH"
        )


def _forbidden(said: str) -> str:
    """Explain a bubblewrap that is there and cannot start anything."""
    reasons = {
        "kernel.unprivileged_userns_clone": "0",
        "kernel.apparmor_restrict_unprivileged_userns": "1",
        "user.max_user_namespaces": "0",
    }
    for name, forbids in reasons.items():
        path = Path("/proc/sys", *name.split("."))
        if path.exists() and path.read_text().strip() == forbids:
            return (
                f"sandbox=bubblewrap: user namespaces are forbidden on this host ({name}={forbids}), and bubblewrap "
                "needs them unless root starts it; ask an administrator to change it (sysctl), or run elsewhere; "
                f"{said}"
            )
    return (
        "sandbox=bubblewrap: bwrap is there and cannot start a program. In a container it needs user namespaces and an "
        "unmasked /proc (docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or "
        f"--privileged). {said}"
    )
