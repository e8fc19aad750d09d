"""What the main process does with completions: a table in the folder, and no end of the run where that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import observers
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.observers import MainObserver
from grpo_exp.rewards.score import Score
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json
from grpo_exp.stop_watch import StopWatch
from unit.run_folder import a_watchdog, settings_of

ROWS = [CompletionRow("q", "a", "1", {"correctness": Score(1.0, "match")}, 1.0, 3, False, 0)]


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    write_json(directory.config_json, settings_of(tmp_path).model_dump(mode="json"))
    return directory


@pytest.fixture
def observer(directory: RunDirectory, tmp_path: Path) -> MainObserver:
    return MainObserver(directory, StopWatch(directory, owner=0), settings_of(tmp_path), watchdog=a_watchdog(directory))


def test_tables_of_training_and_evaluation_are_kept_apart(directory: RunDirectory, observer: MainObserver) -> None:
    for info in (TableInfo("train", 10, 1), TableInfo("train", 2, 1), TableInfo("eval", 0, 1)):
        observer.on_completions(info, ROWS)
    folder = directory.completions
    assert directory.completion_tables("train") == {
        2: folder / "train_000002.parquet",
        10: folder / "train_000010.parquet",
    }
    assert directory.completion_tables("eval") == {0: folder / "eval_000000.parquet"}
    observer.close("completed")


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError(), ValueError("bad")])
def test_table_that_cannot_be_written_costs_one_event(
    error: Exception, directory: RunDirectory, observer: MainObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "write_table", failing(error))
    for step in (1, 2, 3):
        observer.on_completions(TableInfo("train", step, 1), ROWS)
    (event,) = read_events(directory)
    assert (event["kind"], event["step"]) == ("warning", 1)
    assert "the completions of step 1 (train) were not written" in event["text"]
    assert "trainer.completions.every_steps=null" in event["text"]
    monkeypatch.undo()
    observer.on_completions(TableInfo("train", 4, 1), ROWS)  # there is room again
    assert list(directory.completion_tables("train")) == [4]
    observer.close("completed")


def test_disk_without_room_even_for_the_event_does_not_end_the_run(
    directory: RunDirectory, observer: MainObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(observers, "write_table", failing(full))
    monkeypatch.setattr(RunDirectory, "add_event", failing(full))
    observer.on_completions(TableInfo("train", 1, 1), ROWS)
    observer.close("completed")
