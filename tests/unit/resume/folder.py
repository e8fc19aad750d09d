"""Checkpoints made by hand: a few small files, sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_exp.checkpoints.manifest import seal
from grpo_exp.checkpoints.store import CheckpointStore

IDENTITY = {"settings_hash": "0a1b2c3d", "seed": 0}
FILES = {"model.safetensors": b"weights", "optimizer.pt": b"moments", "rng_state.pth": b"random", "run_state_0.pt": b""}


def add(store: CheckpointStore, step: int, *, metrics: tuple[int, int] = (0, 0), **facts: Any) -> Path:
    """Write a checkpoint of 20 bytes; `metrics` are bytes and lines of the curves before it."""
    folder = store.path_of(step)
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    mark = {"bytes": metrics[0], "lines": metrics[1]}
    facts = {**IDENTITY, "metrics": mark, "evaluation": {}, "dataset_fingerprint": "rows", **facts}
    seal(folder, step=step, facts=facts)
    return folder
