"""A run's folder made by hand: what the tests of its readers and writers share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.composition import RunRequest
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.settings.launch import WatchdogSettings
from grpo_exp.settings.run import RunSettings
from grpo_exp.watchdog import Watchdog

#: One run of a few steps on this machine, without a tracker.
WORDS = ("tracker=none", "launch=inline", "trainer.max_steps=5", "trainer.prompts_per_step=2",
         "algorithm.num_generations=4", "dataset.eval_size=5", "dataset.train_size=20")  # fmt: skip


def settings_of(folder: Path, *words: str) -> RunSettings:
    return load.to_settings(load.compose([*WORDS, f"output_dir={folder}", *words]))


def request_of(folder: Path, *words: str) -> RunRequest:
    return RunRequest(settings_of(folder, *words), words, "seed: 0\n")


def a_result(**changes: Any) -> dict[str, Any]:
    """Return the result of a run that completed, apart from what is given."""
    return {"status": "completed", "resumable": False, "reason": "all steps done", "exit_code": 0, "steps": 5,
            "eval": {}, "wall_seconds": 12.0, **changes}  # fmt: skip


def a_watchdog(directory: RunDirectory) -> Watchdog:
    """Return a watchdog that watches nothing."""
    return Watchdog(WatchdogSettings(enabled=False), directory.stacks(0), print)


def a_console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=300), out
