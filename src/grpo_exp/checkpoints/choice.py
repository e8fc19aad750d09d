"""Which checkpoint a run goes on from: the newest that is complete, of this run, and fits the curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.checkpoints.facts import MetricsMark
from grpo_exp.checkpoints.manifest import BrokenCheckpointError
from grpo_exp.checkpoints.store import Checkpoint, CheckpointStore


@dataclass(frozen=True, slots=True)
class Choice:
    """What was found."""

    checkpoint: Checkpoint | None
    """None where the run starts from the beginning."""
    skipped: tuple[str, ...] = ()
    """One line for each newer one: its name, and why not."""


def choose(
    store: CheckpointStore, metrics: Path, identity: Mapping[str, Any], *, earlier_hash: str | None = None
) -> Choice:
    """Return the newest checkpoint that can be gone on from, and why newer ones cannot.

    Args:
        store: The checkpoints of the run.
        metrics: Its `metrics.jsonl`, which holds what was measured before a checkpoint.
        identity: `settings_hash` and `seed` of the run.
        earlier_hash: As of `check`.
    """
    skipped = []
    for step in store.steps():
        try:
            return Choice(check(store, step, metrics, identity, earlier_hash=earlier_hash), tuple(skipped))
        except BrokenCheckpointError as error:
            skipped.append(f"{store.path_of(step).name}: {error}")
    return Choice(None, tuple(skipped))


def check(
    store: CheckpointStore,
    step: int,
    metrics: Path,
    identity: Mapping[str, Any],
    *,
    earlier_hash: str | None = None,
) -> Checkpoint:
    """Return the checkpoint of a step.

    Args:
        store: The checkpoints of the run.
        step: Of the one that is wanted.
        metrics: Its `metrics.jsonl`.
        identity: `settings_hash` and `seed` of the run.
        earlier_hash: What an earlier version of the code made of the same settings, where it made another hash.

    Raises:
        BrokenCheckpointError: It is not complete, of another run, or the curves before it are gone.
    """
    checkpoint = store.read(step)
    known = [identity] if earlier_hash is None else [identity, {**identity, "settings_hash": earlier_hash}]
    if not any(is_of_run(checkpoint, one) for one in known):
        facts = checkpoint.manifest.facts
        raise BrokenCheckpointError(
            f"belongs to other settings ({facts.get('settings_hash')}-s{facts.get('seed')}, and this run is "
            f"{identity['settings_hash']}-s{identity['seed']})"
        )
    _check_metrics(metrics, checkpoint.manifest.facts["metrics"])
    return checkpoint


def is_of_run(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> bool:
    """Say whether a checkpoint was made by these settings with this seed."""
    facts = checkpoint.manifest.facts
    return all(facts.get(name) == identity[name] for name in ("settings_hash", "seed"))


def read_head(metrics: Path, mark: MetricsMark) -> bytes:
    """Return what stood in `metrics.jsonl` when a checkpoint was made; less where it has been cut since."""
    if not metrics.exists():
        return b""
    with metrics.open("rb") as stream:
        return stream.read(mark["bytes"])


def _check_metrics(metrics: Path, mark: MetricsMark) -> None:
    head = read_head(metrics, mark)
    found = head.count(b"\n")
    if len(head) < mark["bytes"] or found != mark["lines"]:
        raise BrokenCheckpointError(
            f"{metrics.name} holds {found} of the {mark['lines']} lines that were written before it"
        )
