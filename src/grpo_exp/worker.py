"""What each worker process runs: read `config.json`, train, write `result.json`.

Started as `python -m grpo_exp.worker RUN_DIRECTORY` by `accelerate launch`, or called in place. It ends with
exit code 0 whenever `result.json` says how the run ended: the launcher loses other codes.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.accelerate_config import strategy_fault
from grpo_exp.checkpoints.continuation import can_go_on, resumed_from, store_of
from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import mark_prefilled
from grpo_exp.errors import ConfigError, ExitCode, RunError, exit_code_of_stop
from grpo_exp.hanging import end_hung
from grpo_exp.observers import MainObserver, SilentObserver
from grpo_exp.revisions import MODEL_REVISION, model_commit, pinned, recorded
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.serving.place import placed, reach_directly
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.run import RunSettings
from grpo_exp.signals import heed_signals
from grpo_exp.stop_watch import StopRequestedError, StopWatch
from grpo_exp.time_limits import build_limits
from grpo_exp.watchdog import Watchdog

if TYPE_CHECKING:
    from grpo_exp.backends.trl.training import TrainingOutcome
    from grpo_exp.backends.trl.whole_saving import CheckpointPlan

#: Set by the front end: workers stop when the process of this number has ended.
OWNER_VARIABLE = "GRPO_EXP_OWNER_PID"


def main() -> None:
    """Run the worker for the run directory in the first argument.

    A signal asks all processes of the run to stop. A second one means nothing here: whoever ends a job sends it to each
    process, and a launcher sends its own to the workers, too. The front end ends them where that is wanted.
    """
    directory = RunDirectory(Path(sys.argv[1]))
    with heed_signals(directory):
        run_worker(directory)


def run_worker(directory: RunDirectory) -> None:
    """Train the run in `directory`, on this process.

    Raises:
        Exception: Whatever ended the run, after the main process has written it down.
    """
    started = time.perf_counter()
    rank = int(os.environ.get("RANK", "0"))
    settings = placed(RunSettings.model_validate(directory.read_config()), directory)
    limits = build_limits(settings.trainer, os.environ, lambda text: directory.add_event("warning", text))
    owner = int(os.environ.get(OWNER_VARIABLE, "0"))
    watch = StopWatch(directory, owner=owner, limits=limits if rank == 0 else ())  # all stop when one does
    if watch.is_replaced():
        raise RunError(f"{directory.path}: another process has taken over the run; nothing is left to do here")
    watchdog = Watchdog(
        settings.launch.watchdog, directory.stacks(rank), lambda why: end_hung(directory, settings, why, rank=rank)
    )
    observer = (
        MainObserver(directory, watch, settings, watchdog=watchdog) if rank == 0 else SilentObserver(watch, watchdog)
    )
    try:
        with watchdog:
            result = _train(directory, settings, observer)
    except BaseException as error:
        traceback.print_exc()
        result = _failure(error, directory, observer.last_step)
        if rank == 0:
            _end(directory, observer, result, time.perf_counter() - started)
        if not isinstance(error, ConfigError):
            raise
        return
    if rank == 0:
        if not observer.is_replaced():
            _draw(directory, settings, result)
        _end(directory, observer, result, time.perf_counter() - started)


def _train(directory: RunDirectory, settings: RunSettings, observer: SilentObserver) -> dict[str, Any]:
    use_cpu = _prepare_process(settings)
    from grpo_exp.backends.trl.training import run_training  # torch and TRL, only now

    _check_world(settings, use_cpu=use_cpu)
    observer.on_devices(torch_facts(use_cpu=use_cpu))
    settings = _at_commits(directory, settings, observer)
    plan = solve_batch(settings)
    data = load_prompts(settings.dataset, seed=settings.seed, plan=plan, reward=settings.reward, model=settings.model)
    if settings.model.opens_reasoning:
        data = mark_prefilled(data)
    observer.on_data(data)
    work = run_training
    if settings.sft is not None:
        from grpo_exp.backends.trl.sft import run_sft

        work = run_sft
    checkpoints = _plan_checkpoints(directory, settings, observer)
    outcome = work(settings, plan, data, observer, model_dir=directory.model, use_cpu=use_cpu, checkpoints=checkpoints)
    return _to_result(outcome, observer, directory, max_steps=settings.trainer.max_steps)


def _at_commits(directory: RunDirectory, settings: RunSettings, observer: SilentObserver) -> RunSettings:
    """Return settings that name the commits that the run began with, found out now where this is its first attempt.

    Raises:
        ConfigError: A commit cannot be had; on all processes, which would wait for the main one in vain.
    """
    if "hub" not in {settings.model.kind, settings.dataset.kind} and settings.model.kind != "local":
        return settings
    commits: dict[str, str] = {}
    error: Exception | None = None
    if int(os.environ.get("RANK", "0")) == 0:
        try:
            commits = recorded(directory)
            commit = None if MODEL_REVISION in commits else model_commit(settings.model)
            if commit is not None:
                commits[MODEL_REVISION] = commit
                observer.on_commits(commits)
        except Exception as raised:
            error = raised
    commits, fault = broadcast_from_main((commits, None if error is None else str(error)))
    if fault is not None:
        raise error or ConfigError(fault)
    return pinned(settings, commits)


def _plan_checkpoints(
    directory: RunDirectory, settings: RunSettings, observer: SilentObserver
) -> CheckpointPlan | None:
    from grpo_exp.backends.trl.whole_saving import CheckpointPlan

    resume = resumed_from(directory)
    if not settings.trainer.checkpoint.enabled and resume is None:
        return None
    return CheckpointPlan(
        store=store_of(directory),
        settings=settings.trainer.checkpoint,
        resume=resume,
        facts=observer.checkpoint_facts,
        is_asked=observer.takes_checkpoint,
        is_broken=lambda: observer.health_stop,
    )


def _to_result(
    outcome: TrainingOutcome, observer: SilentObserver, directory: RunDirectory, *, max_steps: int
) -> dict[str, Any]:
    result: dict[str, Any] = {"status": "completed", "resumable": False, "reason": "all steps done"}
    exit_code = ExitCode.COMPLETED
    if outcome.stopped or observer.health_stop:
        reason = observer.stop_reason or "another process stopped"
        if outcome.steps == max_steps and not observer.health_stop:
            reason += ", in the held-out evaluation after the last step"
        result |= {"status": "stopped", "reason": reason}
        exit_code = ExitCode.ENDED_BY_RULE
        if not observer.health_stop:
            result["resumable"] = can_go_on(directory, steps=outcome.steps)
            exit_code = exit_code_of_stop(resumable=result["resumable"])
    return {**result, "exit_code": int(exit_code), "steps": outcome.steps, "eval": outcome.evaluation}


def _prepare_process(settings: RunSettings) -> bool:
    """Set threads and quiet libraries; return whether the run is on the CPU."""
    # Read when torch loads OpenMP. Threads that spin for long while they wait make a step fifty times slower as
    # soon as anything else wants a core; this many spins cost nothing on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if settings.vllm.mode == "server":
        reach_directly(settings.vllm, os.environ)
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


def torch_facts(*, use_cpu: bool) -> dict[str, Any]:
    """Return what torch was built with and computes on; None for what is not there."""
    import torch
    from torch.cuda import nccl

    has_gpu = torch.cuda.is_available()
    return {
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if has_gpu else None,
        "nccl": ".".join(map(str, nccl.version())) if has_gpu and torch.version.cuda else None,
        "devices": ["cpu"]
        if use_cpu
        else [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "threads": torch.get_num_threads(),
    }


def _check_world(settings: RunSettings, *, use_cpu: bool) -> None:
    from accelerate import PartialState

    fault = strategy_fault(settings.launch, os.environ)
    if fault is not None:
        raise ConfigError(fault)
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


def _failure(error: BaseException, directory: RunDirectory, last_step: int) -> dict[str, Any]:
    if isinstance(error, StopRequestedError):
        resumable = can_go_on(directory, steps=last_step)
        status, code = "stopped", exit_code_of_stop(resumable=resumable)
    elif isinstance(error, ConfigError):
        status, code, resumable = "failed", ExitCode.WRONG_CONFIG, False
    else:
        status, code = "failed", ExitCode.FAILED
        resumable = store_of(directory).newest_step() is not None
    reason = str(error) if isinstance(error, ConfigError | RunError) else f"{type(error).__name__}: {error}"
    return {
        "status": status,
        "resumable": resumable,
        "reason": reason,
        "exit_code": int(code),
        "steps": last_step,
        "eval": {},
    }


def _end(directory: RunDirectory, observer: SilentObserver, result: Mapping[str, Any], seconds: float) -> None:
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


if __name__ == "__main__":
    main()
