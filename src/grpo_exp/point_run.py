"""One run of a sweep: what every launcher starts, as `grpo-exp sweep run-point SWEEP_DIR INDEX`.

The process claims the run before it looks how it stands, so that of several that are started for it only one goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from grpo_exp.composition import RunRequest
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.provenance import settings_hash
from grpo_exp.run_lock import Lock, OwnedError, read_owner
from grpo_exp.rundir import write_json
from grpo_exp.runner import run
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.placement import move
from grpo_exp.sweeps.slurm.allocation import place_in_allocation

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a run is started."""

    attempt: int | None = None
    """Start it only if this is still its newest attempt; None starts it however often it was started."""
    wait_seconds: float = 0.0
    """How long to wait for an owner that may be gone: a lost node's heartbeat is believed for two minutes."""
    cores: Sequence[int] = ()
    """Cores to stay on; empty leaves them as they are."""


def run_point(
    sweep: SweepDirectory,
    index: int,
    terms: Terms,
    console: Console,
    *,
    start: Callable[[RunRequest, Console], int] | None = None,
) -> int:
    """Run one point to its end and return the run's exit code, or 4 where nothing was to be done here.

    Args:
        sweep: It holds the point.
        index: Of the point.
        terms: On which it is started.
        console: Where to tell of it.
        start: Runs it; None is as a single front end, grpo_exp.joined_point brings another.

    Raises:
        ConfigError: There is no such point, or it cannot be run any more as it was planned.
        RunError: Something on this machine is in the way.
    """
    entry = sweep.read_entry(index)
    if terms.cores:
        os.sched_setaffinity(0, terms.cores)
    try:
        with _claimed(sweep, entry, terms):
            return _run_claimed(sweep, entry, terms, lambda: (start or run)(_request(sweep, entry), console), console)
    except OwnedError as error:
        _say(console, f"{entry.run_directory}: not started here: {error}")
        return ExitCode.NOT_MINE
    except KeyboardInterrupt:  # before or after the workers: nothing is lost, and the run is to be started again
        _say(console, f"{entry.run_directory}: interrupted before it began")
        return ExitCode.RESUMABLE


@contextlib.contextmanager
def _claimed(sweep: SweepDirectory, entry: Entry, terms: Terms) -> Iterator[None]:
    """Be the only process that decides about a run.

    Raises:
        OwnedError: Another process does, or runs it.
    """
    path = sweep.claim(entry)
    path.parent.mkdir(exist_ok=True)
    claim, deadline = Lock(path), time.monotonic() + terms.wait_seconds
    while True:
        try:
            claim.acquire()
            break
        except OwnedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        claim.release()


def _run_claimed(sweep: SweepDirectory, entry: Entry, terms: Terms, start: Callable[[], int], console: Console) -> int:
    directory, deadline = sweep.run(entry), time.monotonic() + terms.wait_seconds
    while read_owner(directory.lock).state == "alive":
        if time.monotonic() >= deadline:
            raise OwnedError(
                f"{directory.path}: this run is going on in another process; look at it with grpo-exp show"
            )
        time.sleep(_POLL_SECONDS)
    result = directory.read_result()
    if result is not None and entry.is_done(result):
        _say(console, f"{entry.run_directory}: done already ({result['reason']})")
        return ExitCode.COMPLETED
    if entry.run_directory in sweep.read_cancelled():
        raise OwnedError("it was cancelled; grpo-exp sweep resume takes it up again")
    if terms.attempt is not None and directory.attempt != terms.attempt:
        raise OwnedError(f"another process has run it meanwhile (attempt {directory.attempt})")
    refusal = sweep.refusal(entry)
    refusal.unlink(missing_ok=True)
    try:
        return start()
    except Exception as error:
        if isinstance(error.__cause__, OwnedError):
            raise error.__cause__ from None
        told = str(error) if isinstance(error, ConfigError | RunError) else f"{type(error).__name__}: {error}"
        write_json(refusal, {"time": time.time(), "reason": told.splitlines()[0] if told else type(error).__name__})
        raise


def _request(sweep: SweepDirectory, entry: Entry) -> RunRequest:
    planned = move(load.validate(sweep.read_settings(entry)), sweep.path)
    settings = place_in_allocation(planned, os.environ)
    _check_is_planned(settings, entry)
    return RunRequest(settings, entry.overrides, load.to_yaml(settings.model_dump(mode="json")))


def _check_is_planned(settings: RunSettings, entry: Entry) -> None:
    """Refuse a run that another version of the code would put into another folder.

    Raises:
        ConfigError: The settings have another hash than when they were planned.
    """
    now = f"{settings_hash(settings.model_dump(mode='json'))}-s{settings.seed}"
    if now != entry.run_directory:
        raise ConfigError(
            f"{entry.run_directory}: this version of the code reads its settings as {now}, and a run keeps them; "
            "start the sweep again with the multirun command, which adds the points as they are now"
        )


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
