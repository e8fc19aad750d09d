"""The run directory: whole files, and attempts that keep what earlier ones measured."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json, write_text


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return find_or_create(tmp_path, "abc-s0", resume=True)


# ------------------------------------------------------------------------------------------ whole files


def test_reader_sees_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    """200 changes between 100 kB of a and 100 kB of b, read all the time: never a mixture, never a part."""
    path, seen, done = tmp_path / "result.json", set(), threading.Event()
    texts = ["a" * 100_000, "b" * 100_000]
    write_text(path, texts[0])

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        write_text(path, texts[number % 2])
    done.set()
    reader.join()
    assert seen <= set(texts)
    assert seen


def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """A lone surrogate cannot be encoded, so writing fails after the temporary file was opened."""
    path = tmp_path / "result.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "x" * 100_000 + "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_readable_and_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "data.json"
    write_json(path, {"accuracy": 0.5, "text": "ä"})
    assert json.loads(path.read_text()) == {"accuracy": 0.5, "text": "ä"}
    assert [entry.name for entry in path.parent.iterdir()] == ["data.json"]


# ------------------------------------------------------------------------------------------ folders


def test_resuming_finds_the_same_folder(tmp_path: Path) -> None:
    first = find_or_create(tmp_path, "abc-s0", resume=True)
    (first.path / "metrics.jsonl").write_text("{}\n")
    assert find_or_create(tmp_path, "abc-s0", resume=True) == first
    assert first.metrics.read_text() == "{}\n"
    assert first.run_id == "abc-s0"


def test_never_resuming_makes_neighbours(tmp_path: Path) -> None:
    """abc-s0, then -2, then -3; the first one is left alone."""
    names = [find_or_create(tmp_path / "name", "abc-s0", resume=False).run_id for _ in range(3)]
    assert names == ["abc-s0", "abc-s0-2", "abc-s0-3"]
    assert find_or_create(tmp_path / "name", "abc-s0", resume=True).run_id == "abc-s0"


def test_folders_made_at_the_same_time_differ(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(find_or_create(tmp_path, "abc-s0", resume=False).run_id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["abc-s0", *(f"abc-s0-{number}" for number in range(2, 9))]


def test_folder_that_cannot_be_made_names_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RunError, match=r"cannot be written \(Not a directory\); choose another folder with output_dir="
    ):
        find_or_create(tmp_path / "file" / "runs", "abc-s0", resume=True)


# ------------------------------------------------------------------------------------------ attempts


def leave_an_attempt(directory: RunDirectory) -> dict[str, str]:
    """Write what an attempt can leave; return the text of each file that was measured, by its name in the folder."""
    measured = {
        "metrics.jsonl": '{"step": 1}\n',
        "result.json": '{"status": "failed"}\n',
        "status.json": '{"phase": "training"}\n',
        "completions/eval_000000.parquet": "{}\n",
        "plots/curves.png": "a picture",
        "model/config.json": "{}",
    }
    for name, text in measured.items():
        write_text(directory.path / name, text)
    return measured


def test_what_an_attempt_measured_moves_into_its_logs_when_the_next_one_begins(directory: RunDirectory) -> None:
    assert directory.attempt == 0
    assert begin_attempt(directory) == 1
    measured = leave_an_attempt(directory)
    directory.stop_file.touch()

    assert begin_attempt(directory) == 2
    first = directory.log_root / "attempt-1"
    assert {name: (first / name).read_text() for name in measured} == measured
    # The new one starts clean: no old curve, picture, sample, model, phase or result, and no old request to stop.
    assert [entry.name for entry in directory.path.iterdir()] == ["logs"]
    assert directory.read_result() is None
    assert directory.read_status() is None
    assert directory.attempt_logs == directory.log_root / "attempt-2"
    assert directory.worker_log.parent.is_dir()


def test_what_belongs_to_the_run_stays_and_what_was_asked_for_is_copied(directory: RunDirectory) -> None:
    """The commit of an attempt would be lost with the next one's provenance otherwise."""
    begin_attempt(directory)
    asked = {"config.json": "{}", "config.yaml": "seed: 0\n", "overrides.txt": "seed=0\n", "provenance.json": "{}"}
    belonging = {**asked, "tracker.json": '{"mlflow_run_id": "x"}', "events.jsonl": "{}\n", "wandb/run/log": "text"}
    for name, text in belonging.items():
        write_text(directory.path / name, text)
    begin_attempt(directory)
    assert {name: (directory.path / name).read_text() for name in belonging} == belonging
    first = directory.log_root / "attempt-1"
    assert {entry.name: entry.read_text() for entry in first.iterdir()} == asked


def test_move_that_was_interrupted_is_finished_by_the_next_start(directory: RunDirectory) -> None:
    """Half of the samples were moved, then the process was killed; the other half joins them."""
    begin_attempt(directory)
    write_text(directory.log_root / "attempt-1" / "completions" / "eval_000000.parquet", "moved")
    write_text(directory.completions / "train_000001.parquet", "left")
    begin_attempt(directory)
    first = directory.log_root / "attempt-1" / "completions"
    assert {entry.name: entry.read_text() for entry in first.iterdir()} == {
        "eval_000000.parquet": "moved",
        "train_000001.parquet": "left",
    }
    assert not directory.completions.exists()


def test_tenth_attempt_comes_after_the_ninth(directory: RunDirectory) -> None:
    """As text, attempt-9 sorts after attempt-10."""
    assert [begin_attempt(directory) for _ in range(11)] == list(range(1, 12))


def test_events_are_appended_with_time_and_fields(directory: RunDirectory) -> None:
    before = time.time()
    directory.add_event("critical", "loss is not finite", rule="not_finite", step=7)
    directory.add_event("tracker", "offline")
    first, second = [json.loads(line) for line in directory.events.read_text().splitlines()]
    assert {key: first[key] for key in ("kind", "text", "rule", "step")} == {
        "kind": "critical",
        "text": "loss is not finite",
        "rule": "not_finite",
        "step": 7,
    }
    assert before <= first["time"] <= second["time"] <= time.time()


def test_events_of_one_attempt_or_of_all(directory: RunDirectory) -> None:
    assert read_events(directory) == []
    for text in ("first", "second"):
        begin_attempt(directory)
        directory.add_event("warning", text)
    directory.add_event("warning", "third")
    assert [event["text"] for event in read_events(directory)] == ["first", "second", "third"]
    assert [event["text"] for event in read_events(directory, attempt=1)] == ["first"]
    assert [event["text"] for event in read_events(directory, attempt=2)] == ["second", "third"]


def test_event_that_a_crash_cut_is_left_out_and_costs_no_other(directory: RunDirectory) -> None:
    directory.add_event("warning", "whole")
    with directory.events.open("a") as stream:
        stream.write('{"time": 1.0, "attempt": 0, "kind": "warn')
    directory.add_event("warning", "after")
    assert [event["text"] for event in read_events(directory)] == ["whole", "after"]


def test_folder_without_a_run_says_so(directory: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json, so it is not a run folder"):
        directory.read_config()
