"""When the time that a run may take is over: by its own setting, and by SLURM's limit for the job it runs in."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

from grpo_exp.errors import RunError
from grpo_exp.settings.trainer import TrainerSettings

#: SLURM's controller serves the whole cluster; a limit is moved by hand, and seldom.
_ASK_EVERY_SECONDS = 600.0
_ASK_TIMEOUT_SECONDS = 10.0
#: What `squeue -o %L` says where there is no limit.
_NO_LIMIT = "UNLIMITED"
#: What it says where it does not know one: of a job whose limit is not set or over, or that is not in its list.
_UNKNOWN = frozenset({"NOT_SET", "INVALID", ""})

#: Set by a command that starts workers several times: when it did so first, on the clock of `time.monotonic`, which is
#: the same for all processes of a machine.
BEGAN_VARIABLE = "GRPO_EXP_BEGAN"

Clock = Callable[[], float]
Limit = Callable[[], str | None]


def build_limits(settings: TrainerSettings, environment: Mapping[str, str], tell: Callable[[str], None]) -> list[Limit]:
    """Return what to ask after each step: each says why to stop, or None.

    Args:
        settings: The `trainer` group.
        environment: Of this process; SLURM's variables tell of a job, and ours of an earlier start of this command.
        tell: Told once where the time that SLURM leaves cannot be found out.
    """
    limits: list[Limit] = []
    if settings.max_wall_minutes is not None:
        began = environment.get(BEGAN_VARIABLE)
        limits.append(WallLimit(settings.max_wall_minutes, began=None if began is None else float(began)))
    job = environment.get("SLURM_JOB_ID")
    if job is not None and settings.slurm_margin_minutes > 0:
        limits.append(SlurmLimit(job, settings.slurm_margin_minutes, environment.get("SLURM_JOB_END_TIME"), tell))
    return limits


class WallLimit:
    """Minutes since this object was made, or since earlier.

    Args:
        minutes: How many are allowed.
        clock: Seconds from any start.
        began: When they began on that clock; None is now.
    """

    def __init__(self, minutes: float, clock: Clock = time.monotonic, *, began: float | None = None) -> None:
        self._minutes = minutes
        self._clock = clock
        self._end = (clock() if began is None else began) + 60 * minutes

    def __call__(self) -> str | None:
        """Say why to stop, or None."""
        over = self._clock() >= self._end
        return f"trainer.max_wall_minutes={self._minutes:g} are over" if over else None


class SlurmLimit:
    """The end of a SLURM job, less a margin. SLURM is asked now and then, since limits are moved.

    Args:
        job: Its number.
        margin_minutes: How long before the end to stop.
        known_end: `SLURM_JOB_END_TIME` where SLURM sets it, in unix seconds: used while SLURM does not answer.
        tell: Told once where the end cannot be found out.
        ask: Returns the seconds that are left, or None without a limit; raises RunError where nobody answers.
        clock: Unix seconds.
    """

    def __init__(
        self,
        job: str,
        margin_minutes: float,
        known_end: str | None,
        tell: Callable[[str], None],
        *,
        ask: Callable[[str], float | None] | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._job = job
        self._margin = margin_minutes
        self._tell = tell
        self._ask = ask or ask_squeue
        self._clock = clock
        self._end = float(known_end) if known_end is not None and known_end.isdecimal() else None
        self._ask_at = clock()
        self._told = False

    def __call__(self) -> str | None:
        """Say why to stop, or None."""
        if self._clock() >= self._ask_at:
            self._update()
        if self._end is None or self._clock() < self._end - 60 * self._margin:
            return None
        return f"SLURM ends job {self._job} within {self._margin:g} minutes"

    def _update(self) -> None:
        self._ask_at = self._clock() + _ASK_EVERY_SECONDS
        try:
            left = self._ask(self._job)
        except RunError as error:
            if self._end is None and not self._told:
                self._told = True
                self._tell(f"{error}; without it the run stops in time only if SLURM sends a signal (--signal)")
            return
        self._end = None if left is None else self._clock() + left


def ask_squeue(job: str) -> float | None:
    """Return the seconds that SLURM leaves to a job, or None where it has no limit.

    Raises:
        RunError: There is no `squeue`, it does not answer, or does not know.
    """
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(f"the time that SLURM leaves to job {job} is unknown ({error})") from error
    return parse_time_left(done.stdout.split("\n")[0].strip())


def parse_time_left(text: str) -> float | None:
    """Read SLURM's `days-hours:minutes:seconds`, of which the front parts may be missing, as seconds.

    Raises:
        RunError: It is written in another way, or SLURM does not know: that is no answer.
    """
    if text == _NO_LIMIT:
        return None
    if text in _UNKNOWN:
        raise RunError(f"the time that SLURM leaves is unknown: squeue answered {text!r}")
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not (all(part.isdecimal() for part in [*parts, days or "0"]) and len(parts) <= 3 and bool(dash) == bool(days)):
        raise RunError(f"SLURM answered {text!r}, and days-hours:minutes:seconds were expected")
    hours, minutes, seconds = (int(part) for part in ["0", "0", *parts][-3:])
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)
