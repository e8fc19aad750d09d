"""A copier warns once, tries again, and comes to an end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from grpo_exp.rundir import RunDirectory, begin_attempt, read_events, write_json
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.copier import CopyJob, Notices
from grpo_exp.tracking.copying import RunCopy
from grpo_exp.tracking.metrics_log import MetricsLog
from unit.tracking.fake_tracker import Server, serve


@pytest.fixture(scope="module")
def settings() -> RunSettings:
    return load.to_settings(load.compose(["tracker=mlflow"]))


class Running:
    """A job in its thread, with a run of one record."""

    def __init__(self, folder: Path, settings: RunSettings, retry_seconds: float = 0.05) -> None:
        self.directory = RunDirectory(folder / "run")
        self.directory.path.mkdir(exist_ok=True)
        begin_attempt(self.directory)
        write_json(self.directory.config_json, {})
        self.write(1)
        copy = RunCopy(self.directory, settings, "mlflow")
        notices = Notices(self.directory, "Fake", 1)
        self.job = CopyJob(copy, notices, poll_seconds=0.05, max_retry_seconds=retry_seconds)
        self.thread = threading.Thread(target=self.job.work, args=(self.directory.tracker_lock("mlflow"),))
        self.thread.start()

    def write(self, step: int) -> None:
        with MetricsLog(self.directory.metrics) as log:
            log.append(step, {"a": 1.0}, 0.0)

    def end(self) -> None:
        self.job.end("completed")
        self.thread.join(20)
        assert not self.thread.is_alive()
        assert self.job.has_ended

    def events(self, kind: str) -> list[str]:
        return [event["text"] for event in read_events(self.directory) if event["kind"] == kind]


def wait_for(server: Server, call: str) -> None:
    deadline = time.monotonic() + 20
    while call not in server.seen:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_written_is_sent_and_then_the_end(
    tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    running = Running(tmp_path, settings)
    wait_for(server, "log 1")
    running.write(2)
    wait_for(server, "log 2")
    running.write(3)
    running.end()
    assert server.seen == ["start", "file config.json", "log 1", "log 2", "log 3", "finish completed"]
    assert read_events(running.directory) == []


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(1), KeyError("x")], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("fails_at", ["start", "log 1"])
def test_an_outage_is_one_warning_and_costs_nothing_when_it_is_over(
    fails_at: str, error: BaseException, tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch, fails_at=fails_at, fault=error)
    running = Running(tmp_path, settings)
    deadline = time.monotonic() + 20
    while len(server.infos) < 2:  # it was tried again, after 1 s
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.fault = None
    wait_for(server, "log 1")
    running.end()
    [warning] = running.events("tracker")
    assert warning.startswith(f"Fake does not get the curves: {type(error).__name__}")
    assert "metrics.jsonl has every value" in warning
    assert f"grpo-exp sync {running.directory.path}" in warning
    assert running.events("note") == ["Fake gets the curves again, also those that it had missed"]
    assert server.seen.count("log 1") == 1
    assert server.seen[-1] == "finish completed"


def test_one_that_never_answers_is_given_up_after_three_tries_at_the_end(
    tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most: one try that the end interrupts, three at the end, and two pauses of a second between those."""
    server = serve(monkeypatch, fails_at="start", fault=OSError("refused"))
    running = Running(tmp_path, settings, retry_seconds=60)
    began = time.monotonic()
    running.end()
    assert 3 <= len(server.infos) <= 4
    assert time.monotonic() - began < 5
    assert len(running.events("tracker")) == 1
    assert running.events("note") == []


def test_one_that_recovered_and_failed_again_at_the_end_is_told(
    tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the last word would be that it has everything."""
    server = serve(monkeypatch, fails_at="log 1", fault=OSError("down"))
    running = Running(tmp_path, settings)
    deadline = time.monotonic() + 20
    while not running.events("tracker"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.fault = None
    while not running.events("note"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.fails_at, server.fault = "finish", OSError("down again")
    running.end()
    assert ["down" in text for text in running.events("tracker")] == [True, True]
    assert "tried again until" not in running.events("tracker")[1]


def test_an_attempt_that_is_over_writes_no_events(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    begin_attempt(directory)
    notices = Notices(directory, "Fake", 1)
    begin_attempt(directory)
    notices.failed("down")
    assert read_events(directory) == []


def test_a_damaged_table_is_told_once_and_the_rest_is_sent(
    tmp_path: Path, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    (tmp_path / "run" / "completions").mkdir(parents=True)
    (tmp_path / "run" / "completions" / "train_000010.parquet").write_bytes(b"no parquet")
    running = Running(tmp_path, settings)
    wait_for(server, "log 1")
    running.write(2)
    wait_for(server, "log 2")
    running.end()
    assert server.seen[-1] == "finish completed"
    text = "Fake does not get train_000010.parquet: it is damaged; everything else is sent"
    assert running.events("tracker") == [text]
