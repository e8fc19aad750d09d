"""Checkpoints as folders: what counts as complete, which one is gone on from, what is kept, and room for the next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_exp.checkpoints import manifest, writing
from grpo_exp.checkpoints.choice import choose
from grpo_exp.checkpoints.manifest import BrokenCheckpointError
from grpo_exp.checkpoints.store import CheckpointStore
from grpo_exp.checkpoints.writing import CheckpointWriter
from grpo_exp.errors import RunError
from grpo_exp.settings.checkpoint import CheckpointSettings
from unit.resume.folder import FILES, IDENTITY, add


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


# ------------------------------------------------------------------------------------------ complete or not

#: It is empty.
CANNOT_BE = ("run_state_0.pt", "cut")


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in [*FILES, manifest.MANIFEST] for how in ("deleted", "cut") if (name, how) != CANNOT_BE],
)
def test_one_damaged_file_of_the_newest_falls_back_to_the_one_before(
    name: str, how: str, store: CheckpointStore, tmp_path: Path
) -> None:
    add(store, 4)
    path = add(store, 6) / name
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    choice = choose(store, tmp_path / "metrics.jsonl", IDENTITY)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 4
    (line,) = choice.skipped
    assert line.startswith(f"checkpoint-6: {'has no ' if (name, how) == (manifest.MANIFEST, 'deleted') else ''}{name}")


def test_same_size_and_other_content_is_found_by_its_digest(store: CheckpointStore, tmp_path: Path) -> None:
    (add(store, 6) / "optimizer.pt").write_bytes(b"momentz")
    choice = choose(store, tmp_path / "metrics.jsonl", IDENTITY)
    assert choice.checkpoint is None
    assert choice.skipped == ("checkpoint-6: optimizer.pt has changed since it was written",)


def test_large_files_are_compared_by_size_only(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of 6 bytes, the 7 of the weights count as large and the 6 of the random numbers do not."""
    monkeypatch.setattr(manifest, "DIGEST_LIMIT_BYTES", 6)
    folder = add(store, 6)
    marks = json.loads((folder / manifest.MANIFEST).read_text())["files"]
    assert marks["model.safetensors"] == {"size": 7, "sha256": None}
    assert marks["rng_state.pth"]["sha256"] is not None
    (folder / "model.safetensors").write_bytes(b"weightz")
    assert store.read(6).step == 6
    (folder / "model.safetensors").write_bytes(b"weight")
    with pytest.raises(BrokenCheckpointError, match=r"model\.safetensors holds 6 bytes and 7 were written"):
        store.read(6)


def test_foreign_renamed_and_unreadable_ones_are_skipped_with_one_line_each(
    store: CheckpointStore, tmp_path: Path
) -> None:
    add(store, 2)
    add(store, 4, settings_hash="ffffffff", seed=3)
    add(store, 6).rename(store.path_of(8))
    add(store, 10).joinpath(manifest.MANIFEST).write_text('{"format": 7}')
    store.path_of(12).mkdir()
    store.partial.mkdir()
    choice = choose(store, tmp_path / "metrics.jsonl", IDENTITY)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 2
    assert choice.skipped == (
        "checkpoint-12: has no complete.json, so it was never complete",
        "checkpoint-10: complete.json has format 7, and this version reads 1",
        "checkpoint-8: was made at step 6 and renamed",
        "checkpoint-4: belongs to other settings (ffffffff-s3, and this run is 0a1b2c3d-s0)",
    )


def test_curves_that_were_cut_since_do_not_fit(store: CheckpointStore, tmp_path: Path) -> None:
    """6 bytes in 2 lines were written before step 4, 9 in 3 before step 6; then the file lost its last line."""
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("{}\n{}\n")
    add(store, 4, metrics=(6, 2))
    add(store, 6, metrics=(9, 3))
    choice = choose(store, metrics, IDENTITY)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 4
    assert choice.skipped == ("checkpoint-6: metrics.jsonl holds 2 of the 3 lines that were written before it",)


def test_nothing_to_go_on_from(store: CheckpointStore, tmp_path: Path) -> None:
    choice = choose(store, tmp_path / "metrics.jsonl", IDENTITY)
    assert (choice.checkpoint, choice.skipped, store.newest_step()) == (None, (), None)


# ------------------------------------------------------------------------------------------ writing


def write(store: CheckpointStore, step: int, settings: CheckpointSettings, value: float | None = None) -> None:
    writer = CheckpointWriter(store, settings)
    writer.begin(20)
    for name, content in FILES.items():
        path = store.partial / f"checkpoint-{step}" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    best = {} if value is None else {"best": {"metric": "train/reward", "value": value}}
    writer.finish(step, {**IDENTITY, "metrics": {"bytes": 0, "lines": 0}, **best})


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [2, 4, 5]),  # the newest two, and 0.9 at step 2
        ({"keep": 1}, [2, 5]),
        ({"keep": 4}, [2, 3, 4, 5]),
        ({"best_is": "lowest"}, [1, 4, 5]),
        ({"best_metric": None}, [4, 5]),
        ({"best_metric": "train/other"}, [4, 5]),  # no checkpoint has a value of it
    ],
)
def test_newest_and_best_are_kept(settings: dict[str, object], kept: list[int], store: CheckpointStore) -> None:
    for step, value in enumerate([0.1, 0.9, 0.5, 0.2, 0.3], start=1):
        write(store, step, CheckpointSettings.model_validate(settings), value)
    assert names(store) == [f"checkpoint-{step}" for step in kept]


def test_newer_of_two_equal_ones_is_the_best(store: CheckpointStore) -> None:
    for step, value in enumerate([0.5, 0.5, 0.1, 0.1], start=1):
        write(store, step, CheckpointSettings(keep=1), value)
    assert names(store) == ["checkpoint-2", "checkpoint-4"]


def test_checkpoints_of_others_are_never_deleted(store: CheckpointStore) -> None:
    add(store, 1, settings_hash="ffffffff")
    for step in (2, 3):
        write(store, step, CheckpointSettings(keep=1, best_metric=None))
    assert names(store) == ["checkpoint-1", "checkpoint-3"]


def test_what_was_left_half_written_is_cleared_by_the_next(store: CheckpointStore) -> None:
    (store.partial / "checkpoint-1").mkdir(parents=True)
    (store.partial / "checkpoint-1" / "optimizer.pt").write_bytes(b"half")
    write(store, 2, CheckpointSettings())
    assert names(store) == ["checkpoint-2"]
    assert {path.name for path in store.path_of(2).iterdir()} == {*FILES, manifest.MANIFEST}


def test_one_of_the_same_step_is_replaced(store: CheckpointStore) -> None:
    write(store, 2, CheckpointSettings(), 0.1)
    write(store, 2, CheckpointSettings(), 0.7)
    assert names(store) == ["checkpoint-2"]
    assert store.read(2).manifest.facts["best"]["value"] == 0.7


def test_room_is_looked_at_before_anything_is_written(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of step 2 has 20 bytes, so the next one wants 21, 5 % more: 21 are enough and 20 are not."""
    write(store, 2, CheckpointSettings())
    usage: Callable[[object], SimpleNamespace] = lambda _: SimpleNamespace(free=20)  # noqa: E731
    monkeypatch.setattr(writing.shutil, "disk_usage", usage)
    with pytest.raises(RunError, match=r"0\.0 MB are free .*checkpoint-2 is complete and stays; make room"):
        CheckpointWriter(store, CheckpointSettings()).begin(10**9)
    assert names(store) == ["checkpoint-2"]
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: SimpleNamespace(free=21))
    CheckpointWriter(store, CheckpointSettings()).begin(10**9)


def test_first_one_is_judged_by_the_size_of_the_model(store: CheckpointStore) -> None:
    free = shutil.disk_usage(store.folder.parent).free
    with pytest.raises(RunError, match="there is none before it"):
        CheckpointWriter(store, CheckpointSettings()).begin(2 * free)


def test_failed_one_gives_its_room_back_and_says_what_stays(store: CheckpointStore) -> None:
    write(store, 2, CheckpointSettings())
    writer = CheckpointWriter(store, CheckpointSettings())
    writer.begin(20)
    (store.partial / "half").write_bytes(b"x")
    error = writer.abandon(4, OSError(28, "No space left on device"))
    assert "checkpoint-4 could not be written (OSError: [Errno 28] No space left on device)" in str(error)
    assert "checkpoint-2 is complete and stays" in str(error)
    assert names(store) == ["checkpoint-2"]


def test_set_aside_they_are_out_of_sight_and_not_lost(store: CheckpointStore) -> None:
    for step in (2, 4, 6):
        add(store, step)
    store.set_aside([4, 6], label="left-by-attempt-1")
    assert store.steps() == [2]
    assert names(CheckpointStore(store.folder / "left-by-attempt-1")) == ["checkpoint-4", "checkpoint-6"]
