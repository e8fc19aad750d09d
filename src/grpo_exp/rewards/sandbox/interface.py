"""What a sandbox does for its users, wherever it runs.

A program reads standard input and writes standard output, and this is all that goes in and out, so that a service on
another machine fits the same interface: `run` is one request, `start` a connection over which lines go back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from grpo_exp.errors import RunError


class End(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself, with exit code 0."""
    FAILED = "failed"
    """By itself with another exit code, or by a signal that is no limit of ours."""
    TIMEOUT = "timeout"
    """At the limit on wall or CPU time."""
    MEMORY = "memory"
    """At the limit on memory."""
    PROCESSES = "processes"
    """At the limit on processes, where the kernel does not simply refuse one more."""
    OUTPUT = "output"
    """At the limit on output."""
    STOPPED = "stopped"
    """We had heard enough and ended it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Args:
        wall_seconds: Time on the clock from its start; of a conversation, the time of all of it.
        cpu_seconds: CPU time of each process.
        memory_bytes: Address space of each process, and resident memory of all together.
        num_processes: Processes and threads at a time.
        file_bytes: Size of a file, and of all files in the throw-away folder together.
        output_bytes: Standard output of a run, or one line of a conversation.
    """

    wall_seconds: float
    cpu_seconds: int
    memory_bytes: int
    num_processes: int
    file_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """A Python program.

    Args:
        main: The path of the file that is run, one of `files`.
        files: Text by path relative to a read-only folder that the program sees.
    """

    main: str
    files: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        assert self.main in self.files
        assert all(not Path(path).is_absolute() and ".." not in Path(path).parts for path in self.files)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program; nothing of it runs any more.

    Args:
        end: How it ended.
        stdout: What it wrote, at most `output_bytes`; empty for a conversation.
        stderr: The last few thousand bytes.
    """

    end: End
    stdout: bytes = b""
    stderr: bytes = b""


class Session(Protocol):
    """A program that one can talk to, line by line. Belongs to the thread that started it; close it always."""

    def exchange(self, line: bytes | None, *, seconds: float) -> bytes | None:
        """Send a line and return the next line of the program.

        Args:
            line: What to send, without line break; None to send nothing.
            seconds: Longest wait.

        Returns:
            A line without its break. None when there will be no more: the program ended, was silent for too long, or
            ran into a limit; `close` says which.
        """
        ...

    def close(self) -> Outcome:
        """End the program and all it started, and say how it ended. Can be called again."""
        ...


class Sandbox(Protocol):
    """A place where programs run. Can be used from any thread."""

    def run(self, job: Job, stdin: bytes, limits: Limits) -> Outcome:
        """Run a program to its end, or to a limit.

        Raises:
            RunError: The sandbox itself does not work.
        """
        ...

    def start(self, job: Job, limits: Limits) -> Session:
        """Start a program to talk to.

        Raises:
            RunError: The sandbox itself does not work.
        """
        ...


class SandboxError(RunError):
    """The sandbox itself does not work; no program is to blame."""
