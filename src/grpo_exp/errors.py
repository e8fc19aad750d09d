"""Errors a user can act on, and the exit codes they lead to.

Every message has three parts: what was given, the rule, and the fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell and the batch scripts see."""

    COMPLETED = 0
    FAILED = 1
    WRONG_CONFIG = 2
    #: Ended by a rule (health stop): neither requeued nor resumed by itself.
    ENDED_BY_RULE = 3
    #: Of `sweep run-point` only: nothing was done, since another process has the run or it was cancelled.
    NOT_MINE = 4
    #: Stopped, saved, and wants more time.
    RESUMABLE = 85


def exit_code_of_stop(*, resumable: bool) -> ExitCode:
    """Return the code of a run that was asked to stop: 85 where the same command goes on without loss."""
    return ExitCode.RESUMABLE if resumable else ExitCode.FAILED


class MissingPackageFault(str):
    """A fault of this machine's Python environment alone: where a run starts elsewhere, it may not be one."""


class ConfigError(ValueError):
    """One or more faults in the settings, found before any model is loaded.

    Args:
        faults: One complete message per fault.
    """

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class DataError(ConfigError):
    """A data set that cannot be used as configured."""


class RunError(RuntimeError):
    """A run that could not go on."""
