"""Whether the workers of a run have to stop: on request, in time, without their front end, or when others took it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grpo_exp.errors import RunError
from grpo_exp.run_lock import owner_is_gone, read_owner
from grpo_exp.rundir import RunDirectory


class StopRequestedError(RunError):
    """The run was asked to stop where it cannot end a step first: before training, or while it is replaced."""


class StopWatch:
    """Looks whether the attempt that was the newest one at the start has to stop.

    Args:
        directory: The run.
        owner: Process number of the front end that started this worker; 0 where the worker runs in the owner itself,
            or beside it in processes that somebody else started.
        limits: Each says why to stop, or None; asked in their order.
    """

    def __init__(self, directory: RunDirectory, *, owner: int, limits: Sequence[Callable[[], str | None]] = ()) -> None:
        self._directory = directory
        self._owner = owner
        self._limits = limits
        self._attempt = directory.attempt

    def reason(self) -> str | None:
        """Return why to stop, or None."""
        if self.is_replaced():
            return "another process has taken over the run"
        if self._directory.stop_file.exists():
            return "stopped on request"
        if self._owner and owner_is_gone(self._owner):
            return "the process that started the run has ended"
        return next((reason for limit in self._limits if (reason := limit()) is not None), None)

    def is_replaced(self) -> bool:
        """Say whether the run belongs to others by now: then nothing more may be written into its folder.

        Workers outlive a front end that was killed by up to a step, and their run can be started again at once.
        """
        if self._directory.attempt != self._attempt:
            return True
        return self._owner != 0 and read_owner(self._directory.lock).pid not in {None, self._owner}
