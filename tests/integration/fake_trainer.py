"""A trainer without a model: writes what a real one writes through the real observer, for tests of the trackers.

python fake_trainer.py RUN_FOLDER FIRST_STEP LAST_STEP SECONDS_PER_STEP [STATUS]
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from grpo_exp.observers import MainObserver
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.stop_watch import StopWatch
from grpo_exp.tracking.tracker import RunStatus


def metrics_at(step: int, attempt: int) -> dict[str, float]:
    """Return what the fake measures: numbers that tell step and attempt, and one that is not finite now and then."""
    values = {"train/loss": 1.0 / step, "train/reward": step + attempt / 10, "train/pass@1": step / 7, "train/kl": 1e-9}
    return {**values, "train/grad_norm": math.nan if step % 4 == 3 else float(step)}


def run(directory: RunDirectory, steps: range, *, seconds: float, status: RunStatus) -> None:
    """Train `steps`, and end like a worker does."""
    settings = RunSettings.model_validate(directory.read_config())
    observer = MainObserver(directory, StopWatch(directory, owner=0), settings)
    for step in steps:
        time.sleep(seconds)
        observer.on_metrics(step, metrics_at(step, directory.attempt))
    observer.close(status)
    result = {"status": status, "resumable": False, "reason": "all steps done", "exit_code": int(status == "failed")}
    write_json(directory.result, {**result, "steps": steps.stop - 1, "eval": {}, "wall_seconds": 1.0})


if __name__ == "__main__":
    folder, first, last, pause, *rest = sys.argv[1:]
    run(
        RunDirectory(Path(folder)),
        range(int(first), int(last) + 1),
        seconds=float(pause),
        status="failed" if rest == ["failed"] else "completed",
    )
