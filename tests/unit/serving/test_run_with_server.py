"""The front end of a run with a server of its own: workers start when it is ready, and end when it has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import devices, runner
from grpo_exp.adoption import Adopted
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, write_json
from unit.run_folder import a_console, a_result
from unit.serving.served_run import Stub, begun_run, is_alive, served_settings


class Workers:
    """In the place of launched workers: does what a test wants at each look at them."""

    started: list[Workers]

    def __init__(self, settings: object, directory: RunDirectory, *, gpus: str | None = None) -> None:
        self.gpus, self.directory, self.killed, self.looks = gpus, directory, False, 0
        self.place_was_known = directory.server_place.is_file()
        self.started.append(self)

    def poll(self) -> int | None:
        self.looks += 1
        return self.at_look()

    def at_look(self) -> int | None:
        write_json(self.directory.result, a_result())
        return 0

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(devices, "list_visible_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(Workers, "started", [], raising=False)
    monkeypatch.setattr(runner, "WorkerGroup", Workers)
    return Stub(tmp_path / "calls.jsonl", monkeypatch)


@pytest.fixture
def adopted(tmp_path: Path, stub: Stub) -> Iterator[Adopted]:
    settings = served_settings(tmp_path, "vllm.num_gpus=1")
    directory = begun_run(tmp_path, settings)
    lock = Lock(directory.lock)
    lock.acquire()
    yield Adopted(directory, settings, lock)
    lock.release()


def work(adopted: Adopted) -> tuple[dict[str, Any], str]:
    """Run the front end to its end, and return the result and what was printed."""
    console, out = a_console()
    with adopted.owned():
        runner.work(adopted, console)
    result = adopted.directory.read_result()
    assert result is not None
    return result, out.getvalue()


def test_workers_start_on_the_other_gpus_when_the_server_is_ready(adopted: Adopted, stub: Stub) -> None:
    result, printed = work(adopted)
    assert result["status"] == "completed"
    (workers,) = Workers.started
    assert (workers.gpus, workers.place_was_known) == ("0", True)
    (call,) = stub.calls()
    assert call["gpus"] == "1"
    assert not is_alive(call["pid"])
    assert "vLLM starts on GPU 1, and GPU 0 train" in printed
    assert "vLLM is ready at http://127.0.0.1:" in printed


def test_workers_are_ended_when_the_server_has_ended(
    adopted: Adopted, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_server(self: Workers) -> None:
        if self.looks == 1:
            os.kill(stub.calls()[0]["pid"], signal.SIGKILL)
        assert self.looks < 300

    monkeypatch.setattr(Workers, "at_look", lose_the_server)
    result, _ = work(adopted)
    assert Workers.started[0].killed
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert result["reason"].startswith("the vLLM server of this run has ended with exit code 1")


def test_server_that_never_starts_ends_the_run_before_its_workers_begin(adopted: Adopted, stub: Stub) -> None:
    stub.behave(lives=0.2, loads=60)
    result, printed = work(adopted)
    assert Workers.started == []
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert "the vLLM server of this run has ended with exit code 1" in result["reason"]
    assert str(adopted.directory.server_log) in printed


def test_stop_is_heeded_while_the_server_starts(adopted: Adopted, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.behave(loads=60)
    refresh, sent = runner.LiveRun.refresh, list[int]()

    def stop_when_it_loads(self: Any) -> None:
        if stub.calls() and not sent:
            sent.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
        refresh(self)

    monkeypatch.setattr(runner.LiveRun, "refresh", stop_when_it_loads)
    result, printed = work(adopted)
    assert Workers.started == []
    assert (result["status"], result["exit_code"]) == ("stopped", 85)  # nothing has begun: nothing is lost
    assert "stopped on request, while its vLLM server was starting" in printed
    assert not is_alive(stub.calls()[0]["pid"])
