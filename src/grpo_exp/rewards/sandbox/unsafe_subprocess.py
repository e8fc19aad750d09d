"""Programs as plain processes of this user: for machines without bubblewrap, and programs that you trust.

It is no sandbox against an opponent. A program can read every file that you can (data sets and their tests, keys in
your home), use the network, write where you can write, and look into your other processes. What is kept: a clean
environment, an empty folder as HOME, limits on CPU time, wall time, address space, file size and output. The limit on
processes counts all of your processes. Root's are counted by nobody, so there a program gets a user id of its own, and
root's right to read and write every file with it.

The end: the launcher adopts what daemons leave behind and kills its process group and everything below it. A program
that kills the launcher first can leave processes behind, and a trainer that is killed leaves the program's folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from grpo_exp.rewards.sandbox import process_tree
from grpo_exp.rewards.sandbox.interface import Job, Limits, Outcome
from grpo_exp.rewards.sandbox.interpreter import Interpreter, read_interpreter
from grpo_exp.rewards.sandbox.local_session import Launch, LocalSession
from grpo_exp.rewards.sandbox.own_user import own_user
from grpo_exp.rewards.sandbox.plan import LAUNCHER, build_plan


class UnsafeSubprocess:
    """A `Sandbox` by name only.

    Args:
        python: The interpreter that runs the programs; None is the one that runs this, without its virtual environment.
    """

    def __init__(self, python: str | None = None) -> None:
        self._python = python

    def run(self, job: Job, stdin: bytes, limits: Limits) -> Outcome:
        """Run a program to its end; see `interface.Sandbox`."""
        return self.start(job, limits).run(stdin)

    def start(self, job: Job, limits: Limits) -> LocalSession:
        """Start a program to talk to; see `interface.Sandbox`."""
        # What a program has made unreadable or still writes must not end the training.
        folder = tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True)
        with ExitStack() as stack:
            ours, theirs = os.pipe()
            stack.callback(os.close, theirs)
            try:
                launch = self._launch(job, limits, report=theirs, folder=Path(folder.name))
                return LocalSession(launch, ours, limits, at_end=folder.cleanup)
            except BaseException:
                os.close(ours)
                folder.cleanup()
                raise

    def faults(self) -> list[str]:
        """Return what keeps it from working here, with the fix."""
        if sys.platform == "linux" and process_tree.is_readable():
            return []
        return [
            f"sandbox=unsafe_subprocess: this is {sys.platform}, and it reads the processes of Linux in /proc; "
            "score code on a Linux machine"
        ]

    @cached_property
    def _interpreter(self) -> Interpreter:
        return read_interpreter(self._python)

    def _launch(self, job: Job, limits: Limits, *, report: int, folder: Path) -> Launch:
        for path, text in job.files.items():
            file = folder / "job" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="surrogatepass")
        home = folder / "box"
        home.mkdir()
        command = [*self._interpreter.command, str(folder / "job" / job.main)]
        plan = build_plan(command, limits, report=report, folder=str(home), user=own_user(), adopt=True)
        return Launch(
            command=[*self._interpreter.launcher_command, str(LAUNCHER), plan],
            environment={},
            report=report,
            inherited=[],
            has_namespace=False,
        )
