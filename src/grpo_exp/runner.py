"""From checked settings to a finished run: directory, lock, workers, result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp import provenance
from grpo_exp.composition import RunRequest
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.launching import WorkerGroup
from grpo_exp.preflight import Prepared, prepare
from grpo_exp.reporting.live import LiveRun
from grpo_exp.reporting.summary import print_summary
from grpo_exp.rundir import Lock, RunDirectory, find_or_create, write_json, write_text
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.build import build_tracker
from grpo_exp.tracking.metrics_log import read_metrics
from grpo_exp.worker import run_worker

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that this process owns and is about to start."""

    directory: RunDirectory
    settings: RunSettings
    lock: Lock

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the run, write a result if nobody did, and give it free."""
        try:
            yield
        finally:
            if self.directory.read_result() is None:
                write_json(self.directory.result, _lost_result(self.directory))
            self.lock.release()


def run(request: RunRequest, console: Console) -> int:
    """Run to the end and return the exit code.

    Raises:
        ConfigError: Something is wrong with the settings, or the run is somebody else's just now.
    """
    adopted = adopt(request, console)
    if isinstance(adopted, int):
        return adopted
    directory, settings = adopted.directory, adopted.settings
    with (
        adopted.owned(),
        LiveRun(directory.metrics, directory.status, console, **live_arguments(settings)) as live,
    ):
        if settings.launch.kind == "inline":
            _work_inline(directory, live)
        else:
            _work_launched(directory, settings, live)
    return conclude(directory, settings, console)


def adopt(request: RunRequest, console: Console) -> Adopted | int:
    """Check everything, take the run's folder and write its files; or return the exit code of a finished run.

    Raises:
        ConfigError: Something is wrong with the settings, or the run is somebody else's just now.
    """
    prepared = prepare(request.settings)
    directory = open_directory(request.settings)
    lock = Lock(directory)
    try:
        lock.acquire()
    except RunError as error:
        raise ConfigError(str(error)) from error
    # Asked as the owner: another process may have finished the run a moment ago.
    try:
        finished = finished_code(directory, prepared, request.settings, console)
    except BaseException:
        lock.release()
        raise
    if finished is not None:
        lock.release()
        return finished
    write_run_files(directory, request)
    introduce(directory, prepared, request.settings, console)
    return Adopted(directory, request.settings, lock)


def open_directory(settings: RunSettings) -> RunDirectory:
    """Find the run of these settings, or make a new one.

    Raises:
        ConfigError: The folder cannot be written.
    """
    digest = provenance.settings_hash(settings.model_dump(mode="json"))
    try:
        return find_or_create(
            Path(settings.output_dir) / settings.name,
            f"{digest}-s{settings.seed}",
            resume=settings.resume == "auto",
        )
    except RunError as error:
        raise ConfigError(str(error)) from error


def finished_code(directory: RunDirectory, prepared: Prepared, settings: RunSettings, console: Console) -> int | None:
    """Show the result of a run that needs no more work and return its exit code, else None.

    Raises:
        ConfigError: The run saw other data than there are now.
    """
    result = directory.read_result()
    if result is None or result["exit_code"] not in {ExitCode.COMPLETED, ExitCode.ENDED_BY_RULE}:
        return None
    seen = json.loads(directory.provenance.read_text()).get("dataset_fingerprint")
    if seen is not None and seen != prepared.data.fingerprint():
        raise ConfigError(
            f"{directory.path}: this run is done, on data that have changed since; start another beside it with "
            "resume=never"
        )
    console.print(f"This run is done already ({result['reason']}). To run it again: resume=never")
    return conclude(directory, settings, console)


def write_run_files(directory: RunDirectory, request: RunRequest) -> None:
    """Begin an attempt and write down what is run."""
    attempt = directory.begin_attempt()
    if attempt > 1:
        directory.add_event("restart", f"attempt {attempt} starts from the beginning", attempt=attempt)
    write_json(directory.config_json, request.settings.model_dump(mode="json"))
    write_text(directory.config_yaml, request.config_yaml)
    write_text(directory.overrides, "".join(f"{override}\n" for override in request.overrides))
    facts = provenance.collect(provenance.python_command(list(request.overrides)))
    write_json(directory.provenance, {**facts, "seed": request.settings.seed, "attempt": attempt})


def introduce(directory: RunDirectory, prepared: Prepared, settings: RunSettings, console: Console) -> None:
    """Say what is going to happen."""
    console.print(f"run      {directory.path}", soft_wrap=True, highlight=False)
    console.print(f"batch    {prepared.plan.describe()}", soft_wrap=True, highlight=False)
    console.print(
        f"data     {len(prepared.data.train)} training prompts, {len(prepared.data.evaluation)} held out",
        highlight=False,
    )
    for note in prepared.notes:
        console.print(f"note     {note}", soft_wrap=True, highlight=False)


def live_arguments(settings: RunSettings) -> dict[str, Any]:
    """Return what the live view needs to know about a run."""
    return {"total_steps": settings.trainer.max_steps, "component_names": list(settings.reward.components)}


def conclude(directory: RunDirectory, settings: RunSettings, console: Console) -> int:
    """Print the end of a run and return its exit code."""
    result = directory.read_result()
    assert result is not None  # both ways of running write one
    tracked = directory.tracker.exists()
    tracker = build_tracker(settings.tracker, Path(settings.output_dir), directory.path) if tracked else None
    print_summary(
        result,
        console,
        run_directory=directory.path,
        plot_path=directory.curves if directory.curves.exists() else None,
        open_command=None if tracker is None else tracker.open_command(),
    )
    for event in read_events(directory):
        if event["kind"] in {"warning", "critical", "tracker"}:
            where = f" (step {event['step']})" if "step" in event else ""
            console.print(f"{event['kind']}{where}: {event['text']}", soft_wrap=True, highlight=False)
    if result["status"] == "failed":
        console.print(f"log      {directory.worker_log}", soft_wrap=True, highlight=False)
    return int(result["exit_code"])


def read_events(directory: RunDirectory) -> list[dict[str, Any]]:
    """Return the events of all attempts, oldest first."""
    if not directory.events.exists():
        return []
    return [json.loads(line) for line in directory.events.read_text().splitlines()]


# ------------------------------------------------------------------------- two ways to run the workers


def _work_launched(directory: RunDirectory, settings: RunSettings, live: LiveRun) -> None:
    workers: list[WorkerGroup] = []
    with _stop_on_signal(directory, live, kill=lambda: [group.kill() for group in workers]):
        workers.append(WorkerGroup(settings.launch, directory))
        try:
            while workers[0].poll() is None:
                live.refresh()
                time.sleep(_POLL_SECONDS)
        finally:
            workers[0].kill()


def _work_inline(directory: RunDirectory, live: LiveRun) -> None:
    """Run the worker in place; what libraries print goes into its log, as with a process of its own."""
    ended = threading.Event()

    def refresh() -> None:
        while not ended.wait(_POLL_SECONDS):
            live.refresh()

    watcher = threading.Thread(target=refresh, name="live-view", daemon=True)
    with _stop_on_signal(directory, live, kill=lambda: os._exit(ExitCode.FAILED)):
        watcher.start()
        try:
            with (
                directory.worker_log.open("a") as log,
                contextlib.redirect_stdout(log),
                contextlib.redirect_stderr(log),
            ):
                run_worker(directory)
        except Exception as error:
            live.message(f"{type(error).__name__}: {error}")  # result.json says so, too
        finally:
            ended.set()
            watcher.join()


@contextlib.contextmanager
def _stop_on_signal(directory: RunDirectory, live: LiveRun, *, kill: Any) -> Iterator[None]:
    """First signal: workers finish their step and stop. Second: they are ended now."""
    seen: list[int] = []

    def handle(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) == 1:
            directory.stop_file.touch()
            live.message("stopping after this step; once more to end at once")
        else:
            kill()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _lost_result(directory: RunDirectory) -> dict[str, Any]:
    """Return the result of a run whose workers ended without writing one: killed, or out of memory."""
    stopped = directory.stop_file.exists()
    reason = "ended before the workers could write a result" if stopped else last_error_line(directory)
    records = read_metrics(directory.metrics) if directory.metrics.exists() else []
    steps = max((record["step"] for record in records), default=0)
    return {"status": "stopped" if stopped else "failed", "resumable": False, "reason": reason,
            "exit_code": int(ExitCode.FAILED), "steps": steps, "eval": {}, "wall_seconds": None}  # fmt: skip


def last_error_line(directory: RunDirectory) -> str:
    """Return the last line of the workers' logs that looks like an error, or say that there is none."""
    texts = [path.read_text(errors="replace") for path in sorted(directory.attempt_logs.glob("worker*.log"))]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    errors = [line for line in lines if "Error" in line.partition(":")[0] and not line.startswith("raise ")]
    return errors[-1] if errors else "the workers ended without an error message: killed, or out of memory?"
