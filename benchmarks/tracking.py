"""What a tracker costs: steps of half a second with MLflow (its default, SQLite) and without one, by turns.

python benchmarks/tracking.py [--blocks 6] [--steps 20] [--tracker mlflow]

A step is arithmetic on one core, about 0.5 s, then 40 metrics through the observer of a run. Two runs take turns in
blocks of steps within one process: one with the tracker, one with tracker=none. The copier of the first is told of
nothing while the second has its turn. Before the first block it has opened its run, which takes it seconds once; that
is told apart. What the last line says:

  tracking_overhead   time of a step with the tracker / without - 1: the mean over pairs of blocks of the ratio of their
                      median steps (promise: 0.02 together with the health rules)
  observer_share      time inside the observer (metrics.jsonl, explanations, health rules) / step, with the tracker
  open_seconds        from the start of the copier until it has opened the run and sent the first record
  copier_cpu_share    processor time of the copier per second of a tracked block, beside the trainer's core
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

# A step is work on one core.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np

from grpo_exp.adoption import take, write_run_files
from grpo_exp.checkpoints.choice import Choice
from grpo_exp.composition import build_request
from grpo_exp.observers import MainObserver
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.stop_watch import StopWatch

STEP_SECONDS, NUM_METRICS, SIZE = 0.5, 40, 256


def open_run(folder: Path, *words: str) -> tuple[RunDirectory, MainObserver]:
    """Begin a run as the front end does, and return it with the observer that its worker would have."""
    overrides = [f"output_dir={folder}", *words]
    request = build_request(load.compose(overrides), overrides)
    directory, lock = take(request.settings)
    write_run_files(directory, request, Choice(None), commits={})
    lock.release()
    return directory, MainObserver(directory, StopWatch(directory, owner=0), request.settings)


class Trainer:
    """Computes for about half a second a step, the same arithmetic each time."""

    def __init__(self) -> None:
        self._matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)) / SIZE
        self._rounds = 50
        self._rounds = round(50 * STEP_SECONDS / min(self._compute() for _ in range(5)))

    def _compute(self) -> float:
        began = time.perf_counter()
        product = self._matrix
        for _ in range(self._rounds):
            product = self._matrix @ product
        return time.perf_counter() - began

    def step(self, observer: MainObserver, step: int) -> tuple[float, float]:
        """Make one step; return its seconds and those inside the observer."""
        computed = self._compute()
        metrics = {f"train/metric_{number}": step / (number + 1) for number in range(NUM_METRICS - 1)}
        began = time.perf_counter()
        observer.on_metrics(step, {"train/loss": 1.0 / step, **metrics})
        observed = time.perf_counter() - began
        return computed + observed, observed


def cpu_seconds(directory: RunDirectory) -> float:
    """Return the processor time of the run's copiers so far."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"grpo_exp.tracking.copier" in words and str(directory.path).encode() in words:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_until_open(directory: RunDirectory, name: str) -> float:
    """Wait until the tracker has the first record, and return the seconds."""
    began = time.perf_counter()
    while not (directory.tracker.exists() and json.loads(directory.tracker.read_text())[name]["offset"] > 0):
        time.sleep(0.1)
        if time.perf_counter() - began > 120:
            sys.exit(f"{name} has not got the first record in 120 s; look at {directory.attempt_logs}")
    return time.perf_counter() - began


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=6, help="pairs of blocks")
    parser.add_argument("--steps", type=int, default=20, help="steps of a block")
    parser.add_argument("--tracker", default="mlflow")
    given = parser.parse_args(words)
    trainer = Trainer()
    ratios, shares, cpu = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        tracked, observer = open_run(Path(folder) / "tracked", f"tracker={given.tracker}")
        _, plain = open_run(Path(folder) / "plain", "tracker=none")
        trainer.step(observer, 1)
        open_seconds = wait_until_open(tracked, given.tracker)
        step = 1
        for pair in range(given.blocks):
            medians = {}
            # The order changes from pair to pair, so that a machine that slows down is on neither side.
            for with_tracker in (True, False) if pair % 2 == 0 else (False, True):
                used, began = cpu_seconds(tracked), time.perf_counter()
                times = []
                for _ in range(given.steps):
                    step += 1
                    times.append(trainer.step(observer if with_tracker else plain, step))
                medians[with_tracker] = statistics.median(total for total, _ in times)
                if with_tracker:
                    shares.append(sum(inside for _, inside in times) / sum(total for total, _ in times))
                    cpu.append((cpu_seconds(tracked) - used) / (time.perf_counter() - began))
            ratios.append(medians[True] / medians[False])
            print(f"pair {pair + 1}: {medians[True]:.4f} s tracked, {medians[False]:.4f} s without", flush=True)
        observer.close("completed")
        plain.close("completed")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "tracking_overhead": round(statistics.mean(ratios) - 1, 5),
        "observer_share": round(statistics.mean(shares), 5),
        "copier_cpu_share": round(statistics.mean(cpu), 4),
        "open_seconds": round(open_seconds, 1),
        "tracker": given.tracker,
        "ratios": [round(ratio, 4) for ratio in ratios],
        "cores": len(os.sched_getaffinity(0)),
        "commit": commit.stdout.strip(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
