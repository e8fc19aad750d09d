"""Sweeps whose truth is known: the folders that runs leave, with numbers drawn from a generator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from grpo_exp.reporting.report.run_data import RunCost, RunData
from grpo_exp.reporting.report.sweep_data import SweepData, SweepPoint, find_axes
from grpo_exp.rundir import RunDirectory
from grpo_exp.sweeps.manifest import Entry, SweepDirectory
from grpo_exp.sweeps.states import PointStatus
from unit.run_folder import settings_of

Grid = Mapping[str, Sequence[Any]]
#: The grid of the issue: 3 x 2 x 2 points.
GRID: Grid = {
    "algorithm.num_generations": (4, 8, 16),
    "algorithm.beta": (0.0, 0.01),
    "trainer.learning_rate": (5e-5, 1e-4),
}


@cache
def base_settings() -> dict[str, Any]:
    return settings_of(Path("nowhere")).model_dump(mode="json")


def points_of(grid: Grid) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def in_memory(values: np.ndarray, grid: Grid, *, states: Mapping[tuple[int, int], str] | None = None) -> SweepData:
    """Return a sweep without folders.

    Args:
        values: Accuracies, shape (num_points, num_seeds); NaN for a run without one.
        grid: What the points have on the axes.
        states: Of (point, seed) whose run did not complete.
    """
    sweep, points, statuses = SweepDirectory(Path("nowhere")), [], []
    for index, of_point in enumerate(points_of(grid)):
        runs = []
        for seed, value in enumerate(values[index]):
            state = (states or {}).get((index, seed), "completed")
            run_directory = f"{index:08}-s{seed}"
            entry = Entry(len(statuses), (), {**of_point, "seed": seed}, f"{index:08}", seed, run_directory)
            statuses.append(PointStatus(entry, state, 1, steps=5))  # pyright: ignore[reportArgumentType]
            evaluation = {} if np.isnan(value) else {"after": {"accuracy": float(value)}}
            directory, cost = RunDirectory(Path("nowhere") / run_directory), RunCost(40.0, 400.0, 0.1)
            runs.append(RunData(directory, base_settings(), state, None, None, 5, {}, {}, [], cost, False, evaluation))
        points.append(SweepPoint(index, f"{index:08}", of_point, tuple(runs), tuple(range(len(runs)))))
    return SweepData(sweep, statuses, tuple(points), find_axes(points), tuple(range(values.shape[1])))


def on_disk(
    folder: Path,
    grid: Grid,
    *,
    seeds: int,
    steps: int,
    accuracy: Callable[[Mapping[str, Any], int], float],
    states: Mapping[tuple[int, int], str] | None = None,
) -> SweepDirectory:
    """Write the folder of a sweep as runs leave it.

    Args:
        folder: Where.
        grid: Axes and their values.
        seeds: How many.
        steps: Of each run.
        accuracy: Held-out accuracy after training, of a point and a seed.
        states: Of (point, seed) that did not complete: missing or failed.
    """
    sweep = SweepDirectory(folder)
    folder.mkdir(parents=True)
    manifest, settings = [], []
    lines = folder / ".curves.jsonl"
    lines.write_text(_lines(steps))
    for index, values in enumerate(points_of(grid)):
        for seed in range(seeds):
            run_directory = f"{index:08x}-s{seed}"
            record = {"index": len(manifest), "overrides": [], "values": {**values, "seed": seed},
                      "point_id": f"{index:08x}", "seed": seed, "run_directory": run_directory}  # fmt: skip
            manifest.append(json.dumps(record))
            settings.append(json.dumps(_with(base_settings(), {**values, "seed": seed, "trainer.max_steps": steps})))
            state = (states or {}).get((index, seed), "completed")
            if state != "missing":
                _write_run(folder / run_directory, settings[-1], lines, state, accuracy(values, seed), steps)
    sweep.manifest.write_text("".join(f"{line}\n" for line in manifest))
    sweep.settings.write_text("".join(f"{line}\n" for line in settings))
    return sweep


def _with(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    changed = json.loads(json.dumps(settings))
    for path, value in values.items():
        *groups, key = path.split(".")
        node = changed
        for group in groups:
            node = node[group]
        node[key] = value
    return changed


def _lines(steps: int) -> str:
    """Return the curves of a run as a real one writes them: some forty names a step."""
    generator, lines = np.random.default_rng(0), []
    names = [
        "train/loss", "train/grad_norm", "train/learning_rate", "train/completion_length/mean",
        "train/completion_length/min", "train/completion_length/max", "train/completion_length/truncated_fraction",
        "train/rewards/correctness/mean", "train/rewards/format/mean", "train/reward_std",
        "train/frac_reward_zero_std", "train/kl", "train/kl_from_start", "train/entropy", "train/clip_ratio/low_mean",
        "train/clip_ratio/high_mean", "train/clip_ratio/region_mean", "time/generate", "time/reward", "time/train",
        *(f"train/behaviours/{name}_rate" for name in ("self_verification", "reflection", "backtracking")),
        *(f"train/rewards/{name}/{outcome}" for name in ("correctness", "format")
          for outcome in ("std", "wrong", "timeout", "crash", "unjudgeable")),
    ]  # fmt: skip
    for step in range(1, steps + 1):
        noise = generator.uniform(size=len(names) + 1).round(6).tolist()
        metrics = {**dict(zip(names, noise, strict=False)), "train/reward": step / steps, "time/step": 1.5,
                   "train/num_tokens": 100.0 * step}  # fmt: skip
        lines.append(json.dumps({"step": step, "time": 1.6e9 + step, "metrics": metrics}))
    return "".join(f"{line}\n" for line in lines)


def _write_run(folder: Path, settings: str, lines: Path, state: str, accuracy: float, steps: int) -> None:
    directory = RunDirectory(folder)
    (folder / "logs" / "attempt-1").mkdir(parents=True)
    directory.config_json.write_text(settings)
    directory.metrics.hardlink_to(lines)  # one file for all runs: a thousand of them would be 700 MB
    directory.provenance.write_text(json.dumps({"torch": {"devices": ["cpu"]}}))
    finding = {"time": 1.0, "attempt": 1, "kind": "warning", "text": "9 of 10 groups are dead", "rule": "no_signal",
               "step": 3, "advice": "use easier prompts"}  # fmt: skip
    directory.events.write_text(json.dumps(finding) + "\n")
    completed = state == "completed"
    result = {
        "status": state, "resumable": False, "reason": "all steps done" if completed else "RuntimeError: broken",
        "exit_code": 0 if completed else 1, "steps": steps, "wall_seconds": 12.0,
        "eval": {"before": {"accuracy": 0.4}, "after": {"accuracy": accuracy}} if completed else {},
    }  # fmt: skip
    directory.result.write_text(json.dumps(result))
