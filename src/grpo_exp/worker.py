"""What each worker process runs: read `config.json`, train, write `result.json`.

Started as `python -m grpo_exp.worker RUN_DIRECTORY` by `accelerate launch`, or called in place. It ends with
exit code 0 whenever `result.json` says how the run ended: the launcher loses other codes.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.health.explanations import Explainer
from grpo_exp.health.rules import HealthMonitor
from grpo_exp.rundir import RunDirectory, read_events, write_json
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.run import RunSettings
from grpo_exp.stop_watch import StopRequestedError, StopWatch
from grpo_exp.tracking.background import BackgroundTracker
from grpo_exp.tracking.build import build_tracker
from grpo_exp.tracking.metrics_log import MetricsLog
from grpo_exp.tracking.tracker import RunInfo, RunStatus

if TYPE_CHECKING:
    from grpo_exp.backends.trl.training import TrainingOutcome

#: Set by the front end: workers stop when the process of this number has ended.
OWNER_VARIABLE = "GRPO_EXP_OWNER_PID"
_TRACKER_TIMEOUT_SECONDS = 60.0


def main() -> None:
    """Run the worker for the run directory in the first argument."""
    run_worker(RunDirectory(Path(sys.argv[1])))


def run_worker(directory: RunDirectory) -> None:
    """Train the run in `directory`, on this process.

    Raises:
        Exception: Whatever ended the run, after the main process has written it down.
    """
    started = time.perf_counter()
    rank = int(os.environ.get("RANK", "0"))
    watch = StopWatch(directory, owner=int(os.environ.get(OWNER_VARIABLE, "0")))
    if watch.is_replaced():
        raise RunError(f"{directory.path}: another process has taken over the run; nothing is left to do here")
    settings = RunSettings.model_validate(directory.read_config())
    observer = _MainObserver(directory, watch, settings) if rank == 0 else _SilentObserver(watch)
    try:
        result = _train(directory, settings, observer)
    except BaseException as error:
        traceback.print_exc()
        result = _failure(error, observer.last_step)
        if rank == 0:
            _end(directory, observer, result, time.perf_counter() - started)
        if not isinstance(error, ConfigError):
            raise
        return
    if rank == 0:
        if not observer.is_replaced():
            _draw(directory, settings, result)
        _end(directory, observer, result, time.perf_counter() - started)


def _train(directory: RunDirectory, settings: RunSettings, observer: _SilentObserver) -> dict[str, Any]:
    use_cpu = _prepare_process(settings)
    from grpo_exp.backends.trl.training import run_training  # torch and TRL, only now

    _check_world_size(settings, use_cpu=use_cpu)
    plan = solve_batch(settings)
    data = load_prompts(settings.dataset, seed=settings.seed, plan=plan, reward=settings.reward)
    observer.on_data(data)
    outcome = run_training(settings, plan, data, observer, model_dir=directory.model, use_cpu=use_cpu)
    return _to_result(outcome, observer, max_steps=settings.trainer.max_steps)


def _to_result(outcome: TrainingOutcome, observer: _SilentObserver, *, max_steps: int) -> dict[str, Any]:
    result: dict[str, Any] = {"status": "completed", "resumable": False, "reason": "all steps done"}
    exit_code = ExitCode.COMPLETED
    if outcome.stopped or observer.health_stop:
        reason = observer.stop_reason or "another process stopped"
        if outcome.steps == max_steps and not observer.health_stop:
            reason += ", in the held-out evaluation after the last step"
        result |= {"status": "stopped", "reason": reason}
        exit_code = ExitCode.ENDED_BY_RULE if observer.health_stop else ExitCode.FAILED
    return {**result, "exit_code": int(exit_code), "steps": outcome.steps, "eval": outcome.evaluation}


def _prepare_process(settings: RunSettings) -> bool:
    """Set threads and quiet libraries; return whether the run is on the CPU."""
    # Read when torch loads OpenMP. Threads that spin for long while they wait make a step fifty times slower as
    # soon as anything else wants a core; this many spins cost nothing on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    import torch

    from grpo_exp.models.load import quiet_libraries

    count = settings.launch.threads_per_process
    torch.set_num_threads(count or max(1, len(os.sched_getaffinity(0)) // settings.launch.num_processes))
    quiet_libraries()
    warnings.simplefilter("default")
    has_gpu = torch.cuda.is_available()
    if settings.launch.device == "cuda" and not has_gpu:
        raise ConfigError("launch.device=cuda: torch sees no GPU here; use launch.device=cpu, or another machine")
    return settings.launch.device == "cpu" or not has_gpu


def _check_world_size(settings: RunSettings, *, use_cpu: bool) -> None:
    from accelerate import PartialState

    found, wanted = PartialState(cpu=use_cpu).num_processes, settings.launch.num_processes
    if found != wanted:
        raise RunError(
            f"launch.num_processes={wanted}: {found} worker process(es) came together; the batch was solved "
            f"for {wanted}, so set launch.num_processes={found} or start {wanted}"
        )


def broadcast_from_main(message: Any) -> Any:
    """Hand the main process's message to all processes; each of them calls this."""
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    box: list[Any] = [message]
    # On a CPU the processes find each other only when told that it is one.
    if PartialState(cpu=not torch.cuda.is_available()).num_processes > 1:
        broadcast_object_list(box)
    return box[0]


def _failure(error: BaseException, last_step: int) -> dict[str, Any]:
    code = ExitCode.WRONG_CONFIG if isinstance(error, ConfigError) else ExitCode.FAILED
    status = "stopped" if isinstance(error, StopRequestedError) else "failed"
    reason = str(error) if isinstance(error, ConfigError | RunError) else f"{type(error).__name__}: {error}"
    return {
        "status": status,
        "resumable": False,
        "reason": reason,
        "exit_code": int(code),
        "steps": last_step,
        "eval": {},
    }


def _end(directory: RunDirectory, observer: _SilentObserver, result: Mapping[str, Any], seconds: float) -> None:
    """Close everything and write the result, on the main process; where others took the run, the result is theirs."""
    observer.close(result["status"])
    if not observer.is_replaced():
        write_json(directory.result, {**result, "wall_seconds": seconds})


def _draw(directory: RunDirectory, settings: RunSettings, result: Mapping[str, Any]) -> None:
    """Draw the curves; a picture that fails is told, and does not cost the result."""
    from grpo_exp.reporting.plots import plot_curves
    from grpo_exp.tracking.metrics_log import read_metrics

    records = read_metrics(directory.metrics)
    if not records:
        return
    try:
        directory.curves.parent.mkdir(exist_ok=True)
        plot_curves(records, directory.curves, f"{settings.name} {directory.run_id}", evaluation=result["eval"])
    except Exception as error:
        traceback.print_exc()
        text = f"the curves were not drawn ({type(error).__name__}: {error}); try grpo-exp plot {directory.path}"
        directory.add_event("warning", text)


class _SilentObserver:
    """What processes other than the main one do: look whether to stop."""

    def __init__(self, watch: StopWatch) -> None:
        self._watch = watch
        self.stop_reason: str | None = None
        self.health_stop = False
        self.last_step = 0

    def on_data(self, data: PromptData) -> None:
        """Ignore the data."""

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Ignore phases."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Ignore metrics."""

    def on_samples(self, when: str, samples: list[dict[str, Any]]) -> None:
        """Ignore samples."""

    def on_note(self, text: str) -> None:
        """Ignore notes: the main process writes the same one."""

    def close(self, status: RunStatus) -> None:
        """Nothing is open."""

    def wants_stop(self) -> bool:
        """Say whether a STOP file, a lost front end, a new owner or a health rule asks for it."""
        if self.stop_reason is None:
            self.stop_reason = self._watch.reason()
        return self.stop_reason is not None

    def is_replaced(self) -> bool:
        """Say whether the run belongs to others by now."""
        return self._watch.is_replaced()


class _MainObserver(_SilentObserver):
    """The main process: writes metrics, events and samples, feeds the tracker, watches the run's health."""

    def __init__(self, directory: RunDirectory, watch: StopWatch, settings: RunSettings) -> None:
        super().__init__(watch)
        self._directory = directory
        self._settings = settings
        self._metrics = MetricsLog(directory.metrics)
        self._health = HealthMonitor(settings.health)
        told = [event["topic"] for event in read_events(directory) if event["kind"] == "explanation"]
        self._explainer = Explainer(settings, told=told)
        self._tracker = self._start_tracker()

    def on_data(self, data: PromptData) -> None:
        """Write down which data the run saw."""
        provenance = json.loads(self._directory.provenance.read_text())
        write_json(self._directory.provenance, {**provenance, "dataset_fingerprint": data.fingerprint()})
        for reason, count in data.dropped.items():
            listed = {"targets": list(data.dropped_targets[reason])} if reason in data.dropped_targets else {}
            self._directory.add_event("data", f"{count} rows {reason} were left out", count=count, **listed)

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Tell the front end what is going on; before the first step this is also the place to stop at."""
        if (self.last_step == 0 and self.wants_stop()) or self.is_replaced():
            raise StopRequestedError(self.stop_reason or "another process has taken over the run")
        write_json(self._directory.status, {"phase": name, "done": done, "total": total})

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Write, then copy to the tracker, then look."""
        record = self._metrics.append(step, metrics, time.time())
        if self._tracker is not None:
            self._tracker.log(record)
        if step == 0 or "train/loss" not in metrics:
            return
        self.last_step = step
        for explanation in self._explainer.observe(step, record["metrics"]):
            self._directory.add_event("explanation", explanation.text, topic=explanation.topic, step=step)
        for finding in self._health.observe(step, record["metrics"], record.get("non_finite", [])):
            self._directory.add_event(finding.severity, finding.text, rule=finding.rule, step=finding.step)
            if finding.severity == "critical" and self._settings.health.on_critical == "stop":
                self.stop_reason, self.health_stop = f"health: {finding.text}", True

    def on_samples(self, when: str, samples: list[dict[str, Any]]) -> None:
        """Keep the held-out completions with their scores."""
        path = self._directory.held_out_samples(when)
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as stream:
            stream.writelines(json.dumps(sample) + "\n" for sample in samples)

    def on_note(self, text: str) -> None:
        """Write it down; the front end shows it."""
        self._directory.add_event("note", text)

    def close(self, status: RunStatus) -> None:
        """End the tracker run; what it says about itself goes into `tracker.json` and the events."""
        if not self.is_replaced():
            self._directory.status.unlink(missing_ok=True)
        self._metrics.close()
        if self._tracker is not None:
            self._tracker.finish(status, _TRACKER_TIMEOUT_SECONDS)

    def _start_tracker(self) -> BackgroundTracker | None:
        directory, settings = self._directory, self._settings
        tracker = build_tracker(settings.tracker, Path(settings.output_dir), directory.path)
        if tracker is None:
            return None
        background = BackgroundTracker(tracker, lambda text: directory.add_event("tracker", text))
        background.start(
            RunInfo(
                name=settings.name,
                run_id=directory.run_id,
                config=directory.read_config(),
                directory=directory.path,
                tags={"seed": str(settings.seed), "algorithm": settings.algorithm.name},
            ),
            on_started=lambda ids: write_json(directory.tracker, ids),
        )
        return background


if __name__ == "__main__":
    main()
