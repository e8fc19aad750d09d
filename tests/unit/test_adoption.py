"""Who gets a run's folder, when a run that ended is run again, and what a restart writes down."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import adoption
from grpo_exp.adoption import Adopted, adopt, take
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json
from unit.run_folder import a_console, a_result, request_of, settings_of


def start(folder: Path, *words: str) -> tuple[Adopted | int, str]:
    console, out = a_console()
    return adopt(request_of(folder, *words), console), out.getvalue()


def run_to(folder: Path, result: dict[str, Any], *words: str) -> RunDirectory:
    """Start a run, and let it end with this result."""
    adopted, _ = start(folder, *words)
    assert isinstance(adopted, Adopted)
    with adopted.owned():
        write_json(adopted.directory.result, result)
    return adopted.directory


ENDED_BY_RULE = a_result(
    status="stopped", reason="health.rules.not_finite: train/loss is not finite", exit_code=3, steps=2
)

# ------------------------------------------------------------------------------------------ run again or not


def test_completed_run_is_shown_and_not_run_again(tmp_path: Path) -> None:
    directory = run_to(tmp_path, a_result())
    for words in ((), ("health=off",)):  # other rules make no other curves
        code, text = start(tmp_path, *words)
        assert code == 0
        assert "done already (all steps done). To run it again: resume=never" in text
    assert directory.attempt == 1
    assert not directory.lock.exists()


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_unfinished_run_is_run_again_in_its_folder(status: str, tmp_path: Path) -> None:
    directory = run_to(tmp_path, a_result(status=status, exit_code=1))
    assert run_to(tmp_path, a_result()) == directory
    assert directory.attempt == 2
    assert json.loads((directory.log_root / "attempt-1" / "result.json").read_text())["status"] == status


def test_interrupt_while_no_worker_runs_is_a_stop(tmp_path: Path) -> None:
    """The command ends with 85; that the workers were killed, or out of memory, would stand in the result."""
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)
    with pytest.raises(KeyboardInterrupt), adopted.owned():
        raise KeyboardInterrupt
    result = adopted.directory.read_result()
    assert result is not None
    assert (result["status"], result["exit_code"], result["resumable"]) == ("stopped", 85, True)
    assert not adopted.directory.stop_file.exists()
    assert not adopted.directory.lock.exists()


def test_run_that_a_rule_ended_is_shown_while_the_rules_are_the_same(tmp_path: Path) -> None:
    directory = run_to(tmp_path, ENDED_BY_RULE)
    code, text = start(tmp_path, "tracker=mlflow")  # no setting of health, and none of the hash
    assert code == 3
    assert "ended by a rule (health.rules.not_finite: train/loss is not finite)" in text
    assert "health=off" in text
    assert "resume=never" in text
    assert directory.attempt == 1


@pytest.mark.parametrize(
    "word", ["health=off", "health.rules.not_finite.action=alert", "health.rules.truncation.window=20"]
)
def test_run_that_a_rule_ended_is_run_again_under_other_rules(word: str, tmp_path: Path) -> None:
    directory = run_to(tmp_path, ENDED_BY_RULE)
    adopted, text = start(tmp_path, word)
    assert isinstance(adopted, Adopted)
    assert adopted.directory == directory
    assert directory.attempt == 2
    assert directory.read_result() is None
    assert "attempt 2 starts from the beginning" in text
    adopted.lock.release()


def test_rules_it_ended_under_last_are_the_ones_that_count(tmp_path: Path) -> None:
    """Ended with window 10, again with 20: 20 shows that end, 10 runs a third time."""
    run_to(tmp_path, ENDED_BY_RULE)
    run_to(tmp_path, ENDED_BY_RULE, "health.rules.truncation.window=20")
    code, _ = start(tmp_path, "health.rules.truncation.window=20")
    assert code == 3
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)
    adopted.lock.release()


def test_end_on_other_data_is_not_shown_as_if_it_were_this_one(tmp_path: Path) -> None:
    directory = run_to(tmp_path, a_result())
    write_json(directory.provenance, {"dataset_fingerprint": "another"})
    with pytest.raises(ConfigError, match="on data that have changed since"):
        start(tmp_path)
    assert not directory.lock.exists()


# ------------------------------------------------------------------------------------------ restarts


def test_restart_names_the_settings_that_changed(tmp_path: Path) -> None:
    directory = run_to(tmp_path, a_result(status="failed", exit_code=1))
    run_to(tmp_path, a_result(), "health=off", "launch.main_process_port=29500")
    (event,) = read_events(directory, attempt=2)
    assert event["kind"] == "restart"
    assert event["changed"] == {
        "health.enabled": [True, False],
        "health.kl_probe.enabled": [True, False],
        "launch.main_process_port": [None, 29500],
    }
    assert event["text"].endswith(
        "changed: health.enabled=false (was true), health.kl_probe.enabled=false (was true), "
        "launch.main_process_port=29500 (was null)"
    )
    assert directory.read_config()["health"]["enabled"] is False
    assert json.loads((directory.log_root / "attempt-1" / "config.json").read_text())["health"]["enabled"] is True


def test_restart_of_the_same_settings_changes_nothing(tmp_path: Path) -> None:
    directory = run_to(tmp_path, a_result(status="failed", exit_code=1))
    assert read_events(directory) == []  # the first attempt is no restart
    run_to(tmp_path, a_result())
    (event,) = read_events(directory)
    assert event["changed"] == {}
    assert "changed:" not in event["text"]


# ------------------------------------------------------------------------------------------ several starts


def test_run_that_is_going_on_is_refused_and_one_beside_it_is_not(tmp_path: Path) -> None:
    first, _ = start(tmp_path)
    assert isinstance(first, Adopted)
    with pytest.raises(ConfigError, match=r"this run is going on in process .*resume=never"):
        start(tmp_path)
    assert first.directory.attempt == 1  # the refused one has touched nothing
    beside, _ = start(tmp_path, "resume=never")
    assert isinstance(beside, Adopted)
    assert beside.directory.run_id == f"{first.directory.run_id}-2"
    for adopted in (first, beside):
        adopted.lock.release()


def test_starts_beside_each_other_at_one_time_get_folders_of_their_own(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "resume=never")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(take(settings)[0].run_id)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = min(found, key=len)
    assert sorted(found) == [first, *(f"{first}-{number}" for number in range(2, 7))]


@pytest.mark.parametrize("gives_free", [False, True])
def test_new_folder_that_another_start_found_first_is_left_to_it(
    gives_free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making the folder and locking it: a start with resume=auto is quicker, and may even have ended."""
    rivals: list[RunDirectory] = []

    def make_and_lose(root: Path, run_id: str, *, resume: bool) -> RunDirectory:
        directory = find_or_create(root, run_id, resume=resume)
        if not rivals:
            rivals.append(directory)
            lock = Lock(directory.lock)
            lock.acquire()
            begin_attempt(directory)
            if gives_free:
                lock.release()
        return directory

    monkeypatch.setattr(adoption, "find_or_create", make_and_lose)
    directory, lock = take(settings_of(tmp_path, "resume=never"))
    assert directory.run_id == f"{rivals[0].run_id}-2"
    assert directory.attempt == 0
    lock.release()


def test_folder_that_cannot_be_written_ends_a_start_beside_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not look for a next folder for ever."""

    def refuse(self: Lock) -> None:
        raise RunError("cannot be written")

    monkeypatch.setattr(Lock, "acquire", refuse)
    with pytest.raises(ConfigError, match="cannot be written"):
        take(settings_of(tmp_path, "resume=never"))


# ------------------------------------------------------------------------------------------ the end


def test_run_is_given_free_when_its_files_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adoption, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path)
    assert list(tmp_path.glob("*/*/config.json"))
    assert not list(tmp_path.glob("*/*/lock.json"))


def test_workers_that_died_leave_a_result_and_no_lock(tmp_path: Path) -> None:
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)
    with adopted.owned():
        write_json(adopted.directory.status, {"phase": "training", "done": 0, "total": 5})
    result = adopted.directory.read_result()
    assert result is not None
    assert (result["status"], result["exit_code"], result["steps"]) == ("failed", 1, 0)
    assert 0 <= result["wall_seconds"] < 60
    assert not adopted.directory.lock.exists()
    assert not adopted.directory.status.exists()


def test_result_of_the_workers_is_kept(tmp_path: Path) -> None:
    assert run_to(tmp_path, a_result(steps=4)).read_result() == a_result(steps=4)


def test_run_that_others_took_over_gets_no_result_of_ours(tmp_path: Path) -> None:
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)
    with adopted.owned():
        theirs = json.dumps({"host": "elsewhere", "pid": 7, "start": "1"})
        adopted.directory.lock.write_text(theirs)
    assert adopted.directory.read_result() is None
    assert adopted.directory.lock.read_text() == theirs


def test_lock_is_given_free_although_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(adoption, "write_json", full)
    with pytest.raises(OSError, match="No space"), adopted.owned():
        pass
    assert not adopted.directory.lock.exists()
