"""Begin an attempt that goes on behind a checkpoint: what was measured later is put away, the rest stays."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from grpo_exp.checkpoints.choice import Choice, read_head
from grpo_exp.checkpoints.store import Checkpoint, CheckpointStore
from grpo_exp.rundir import RunDirectory, begin_attempt, write_bytes, write_json

#: The step at the end of a file's name, as in train_000012.parquet.
_STEP = re.compile(r"(\d+)$")


def store_of(directory: RunDirectory) -> CheckpointStore:
    """Return the checkpoints of a run."""
    return CheckpointStore(directory.checkpoints)


def can_go_on(directory: RunDirectory, *, steps: int) -> bool:
    """Say whether a stopped run goes on without loss: from a checkpoint, or because no step had been done.

    Args:
        directory: The run.
        steps: How many were done.
    """
    return steps == 0 or store_of(directory).newest_step() is not None


def begin(directory: RunDirectory, choice: Choice) -> int:
    """Begin an attempt behind the chosen checkpoint, or from the beginning, and return its number.

    Killed in between it can be called again: nothing that the checkpoint needs is moved.
    """
    store, checkpoint, before = store_of(directory), choice.checkpoint, directory.attempt
    done = 0 if checkpoint is None else checkpoint.step
    store.set_aside([step for step in store.steps() if step > done], label=f"left-by-attempt-{before}")
    if checkpoint is None:
        number = begin_attempt(directory)
    else:
        directory.attempt_logs.mkdir(parents=True, exist_ok=True)
        _cut_metrics(directory, checkpoint)
        _put_completions_away(directory, done)
        number = begin_attempt(directory, keeps=(directory.metrics, directory.completions))
    write_json(directory.resume_point, {"checkpoint_step": None if checkpoint is None else checkpoint.step})
    return number


def resumed_from(directory: RunDirectory) -> Checkpoint | None:
    """Return the checkpoint that the newest attempt goes on from, as its start has chosen and checked it."""
    step = (
        json.loads(directory.resume_point.read_text())["checkpoint_step"] if directory.resume_point.exists() else None
    )
    return None if step is None else store_of(directory).read(step, digests=False)


def _cut_metrics(directory: RunDirectory, checkpoint: Checkpoint) -> None:
    """Leave the curves up to the checkpoint; the whole file is kept with the log of the attempt that wrote it.

    What `grpo-exp evaluate` measured of models that stay is left, too: it was written when the attempt had ended.
    """
    metrics, head = directory.metrics, read_head(directory.metrics, checkpoint.manifest.facts["metrics"])
    whole = metrics.read_bytes()
    left = head + b"".join(line for line in whole[len(head) :].splitlines(True) if _is_kept(line, checkpoint.step))
    if whole != left:
        shutil.copy2(metrics, directory.attempt_logs)
        write_bytes(metrics, left)


def _is_kept(line: bytes, done: int) -> bool:
    """Say whether a line behind the checkpoint holds results of benchmarks of a step up to it."""
    try:
        record = json.loads(line)
    except ValueError:  # cut by a crash
        return False
    names = record["metrics"]
    return record["step"] <= done and bool(names) and all(name.startswith("benchmark/") for name in names)


def _put_completions_away(directory: RunDirectory, done: int) -> None:
    """Move the completions of later steps to the log of the attempt that sampled them."""
    if not directory.completions.is_dir():
        return
    target = directory.attempt_logs / directory.completions.name
    for path in [path for path in directory.completions.iterdir() if _is_later(path, directory, done)]:
        target.mkdir(exist_ok=True)
        path.replace(target / path.name)


def _is_later(path: Path, directory: RunDirectory, done: int) -> bool:
    """Say whether a table is of a later step; the evaluation behind the checkpoint itself was made after it."""
    found = _STEP.search(path.stem)
    if found is None:
        return False
    step = int(found[1])
    return step > done or (step == done and path in directory.completion_tables("eval").values())
