"""Sweeps made by hand: points that differ by their seed, and runs that a stub makes in a moment."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from grpo_exp.provenance import settings_hash
from grpo_exp.rundir import RunDirectory, begin_attempt, write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.manifest import SweepDirectory, extend
from grpo_exp.sweeps.placement import place
from grpo_exp.sweeps.planning import Point
from unit.run_folder import a_result, settings_of

CALL = {"launcher": {"kind": "local", "settings": {"slots": 1, "gpus_per_run": None}}, "words": ["seed=0,1"]}
#: A run of the stub, in place of `grpo-exp sweep`: light enough to be started many times.
STUB = (sys.executable, str(Path(__file__).with_name("stub_point.py")))


@cache
def base_settings() -> RunSettings:
    return settings_of(Path("nowhere"))


def a_point(folder: Path, *, seed: int, rate: float = 1e-4) -> Point:
    # As many steps as `finish` leaves behind: a run with fewer is not done.
    trainer = base_settings().trainer.model_copy(update={"learning_rate": rate, "max_steps": 2})
    settings = place(base_settings().model_copy(update={"seed": seed, "trainer": trainer}), folder)
    values = {"trainer.learning_rate": rate, "seed": seed}
    words = tuple(f"{key}={value}" for key, value in values.items())
    return Point(words, values, settings, settings_hash(settings.model_dump(mode="json")))


def a_sweep(folder: Path, *, seeds: int, rates: tuple[float, ...] = (1e-4,)) -> SweepDirectory:
    """Write a sweep of so many seeds for each learning rate; nothing was run."""
    sweep = SweepDirectory(folder)
    extend(sweep, [a_point(folder, seed=seed, rate=rate) for rate in rates for seed in range(seeds)], call=CALL)
    return sweep


def finish(directory: RunDirectory, **result: Any) -> None:
    """Leave what a run leaves that ended: logs, curves of two steps, a result."""
    directory.path.mkdir(parents=True, exist_ok=True)
    begin_attempt(directory)
    lines = [{"step": step, "time": 1.0, "metrics": {"train/reward": step / 10}} for step in (1, 2)]
    directory.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if result.get("exit_code", 0) is not None:
        write_json(directory.result, a_result(steps=2, **result))
