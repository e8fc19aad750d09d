"""Runs of the real command in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: A policy that is primed in seconds: it knows the form a little and no sums, which is all these tests need.
QUICK_MODEL = (
    "model.priming.steps=30",
    "model.priming.batch_size=32",
    "model.architecture.hidden_size=64",
    "model.architecture.intermediate_size=128",
)


@dataclass(frozen=True)
class Finished:
    """A command that ended: exit code, what it printed, seconds of the clock and of the processor."""

    code: int
    output: str
    seconds: float
    cpu_seconds: float


def run_command(*words: str, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240) -> Finished:
    """Run a command to its end; its output is one text, errors included."""
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Finished(done.returncode, done.stdout, time.perf_counter() - started, cpu)


def run_train(*words: str, cwd: Path, **options: Any) -> Finished:
    """Run `python -m grpo_exp.train` with these words."""
    return run_command(sys.executable, "-m", "grpo_exp.train", *words, cwd=cwd, **options)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON objects."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what a clock measured: the rest must repeat with the seed."""
    return [
        {"step": r["step"], "metrics": {k: v for k, v in r["metrics"].items() if not k.startswith("time/")}}
        for r in records
    ]


def only_run(output_dir: Path) -> Path:
    """Return the one run folder below an output folder."""
    (config,) = output_dir.glob("*/*/config.json")
    return config.parent


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until something is true, and fail by name where it is not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {seconds} s")
        time.sleep(0.1)
