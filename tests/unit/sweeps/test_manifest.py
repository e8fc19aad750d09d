"""The sweep's folder: runs keep their numbers, and two writers never spoil it."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.finding import find_sweep
from grpo_exp.sweeps.manifest import SweepDirectory, extend, set_cancelled
from unit.sweeps.sweep_folder import CALL, a_point, a_sweep


def test_each_run_is_one_line_with_its_settings(tmp_path: Path) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=2)
    lines = [json.loads(line) for line in sweep.manifest.read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert [line["seed"] for line in lines] == [0, 1]
    assert lines[0]["point_id"] == lines[1]["point_id"]
    assert lines[1]["run_directory"] == f"{lines[1]['point_id']}-s1"
    assert lines[1]["overrides"] == ["trainer.learning_rate=0.0001", "seed=1"]
    assert sweep.read_settings(sweep.read_entry(1))["seed"] == 1


def test_the_same_points_again_keep_their_numbers_and_new_ones_follow(tmp_path: Path) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=2)
    before = sweep.read_entries()
    points = [a_point(sweep.path, seed=seed) for seed in (3, 1)]
    added = extend(sweep, points, call=CALL)
    assert [entry.index for entry in added] == [2, 1]
    assert sweep.read_entries() == [*before, added[0]]
    assert [sweep.read_settings(entry)["seed"] for entry in sweep.read_entries()] == [0, 1, 3]
    assert len(sweep.read_about()["calls"]) == 2


def test_what_may_change_on_resume_is_taken_from_the_newest_call(tmp_path: Path) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=1)
    point = a_point(sweep.path, seed=0)
    health = point.settings.health.model_copy(update={"enabled": False})
    changed = point.settings.model_copy(update={"health": health})
    extend(sweep, [type(point)(point.words, point.values, changed, point.point_id)], call=CALL)
    (entry,) = sweep.read_entries()
    assert sweep.read_settings(entry)["health"]["enabled"] is False


def test_a_narrower_call_keeps_the_place_of_a_run_on_the_axes(tmp_path: Path) -> None:
    """As after `algorithm=dapo,grpo` the call `algorithm=dapo seed=0,3`: no column of the table may become empty."""
    sweep = a_sweep(tmp_path / "s", seeds=1)
    point = a_point(sweep.path, seed=0)
    extend(sweep, [type(point)(point.words, {"seed": 0}, point.settings, point.point_id)], call=CALL)
    assert dict(sweep.read_entry(0).values) == {"trainer.learning_rate": 1e-4, "seed": 0}


def add_seeds(folder: str, first: int) -> None:
    for seed in range(first, first + 10):
        extend(SweepDirectory(Path(folder)), [a_point(Path(folder), seed=seed)], call=CALL)


def test_two_processes_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    """2 writers x 10 additions, 5 of them the same: 15 runs, numbered without a gap."""
    a_point(tmp_path / "s", seed=0)  # composed once, before the processes part
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=add_seeds, args=(str(tmp_path / "s"), first)) for first in (0, 5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)
        assert writer.exitcode == 0
    sweep = SweepDirectory(tmp_path / "s")
    entries = sweep.read_entries()
    assert [entry.index for entry in entries] == list(range(15))
    assert {entry.seed for entry in entries} == set(range(15))
    assert [sweep.read_settings(entry)["seed"] for entry in entries] == [entry.seed for entry in entries]
    assert len(sweep.read_about()["calls"]) == 20
    assert not sweep.lock.exists()


def test_settings_that_a_crash_left_over_are_dropped(tmp_path: Path) -> None:
    """Settings are written before the manifest, so that a crash in between leaves one line too many."""
    sweep = a_sweep(tmp_path / "s", seeds=1)
    with sweep.settings.open("a") as stream:
        stream.write('{"seed": 99}\n')
    extend(sweep, [a_point(sweep.path, seed=1)], call=CALL)
    assert [sweep.read_settings(entry)["seed"] for entry in sweep.read_entries()] == [0, 1]


def test_marks_of_cancelled_runs_are_added_and_taken_away(tmp_path: Path) -> None:
    sweep = a_sweep(tmp_path / "s", seeds=3)
    set_cancelled(sweep, add=["a", "b"])
    set_cancelled(sweep, add=["c"], remove=["a"])
    assert sweep.read_cancelled() == {"b", "c"}


def test_a_sweep_is_found_by_folder_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = a_sweep(tmp_path / "outputs" / "sweeps" / "rates", seeds=1)
    assert find_sweep(str(sweep.path)) == sweep
    assert find_sweep("rates") == sweep
    with pytest.raises(ConfigError, match="did you mean rates"):
        find_sweep("ratse")
    with pytest.raises(ConfigError, match=r"7: is no index of .*, which holds 0 to 0"):
        sweep.read_entry(7)
