"""Who looks after a run's server: it is started, told, and ended with the run, whatever happens first."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.run_lock import Lock, OwnedError
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving import supervision
from grpo_exp.serving.place import read_address
from grpo_exp.serving.supervision import Service, serve
from unit.serving.served_run import Stub, alive, begun_run, is_alive, served_settings


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(supervision, "END_SECONDS", 0.5)
    return Stub(tmp_path / "calls.jsonl", monkeypatch)


def service(folder: Path, *words: str) -> Service:
    settings = served_settings(folder, *words)
    return Service(begun_run(folder, settings), settings, "127.0.0.1")


def once(condition: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do something in another thread as soon as a condition holds, within 15 s."""

    def watch() -> None:
        deadline = time.monotonic() + 15
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def nothing_is_left(directory: RunDirectory, stub: Stub) -> bool:
    files = [path for path in (directory.server, directory.server_lock) if path.exists()]
    return not files and not any(is_alive(call["pid"]) for call in stub.calls())


def test_server_is_told_when_it_is_ready_and_ends_with_its_run(tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=0.3)
    mine, run, told = service(tmp_path), Lock(tmp_path / "run" / "lock.json"), list[str]()
    addresses: list[object] = []

    def end_the_run() -> None:
        addresses.append(read_address(mine.directory))
        assert is_alive(stub.calls()[0]["pid"])
        run.release()

    run.acquire()
    watcher = once(lambda: mine.directory.server.exists(), end_the_run)
    assert serve(mine, told.append) == 0
    watcher.join()
    (call,) = stub.calls()
    port = int(call["words"][call["words"].index("--port") + 1])
    assert addresses == [("127.0.0.1", port)]
    assert call["words"][:4] == ["serve", str(tmp_path / "the model"), "--host", "127.0.0.1"]
    assert call["dev_mode"] == "1"
    assert told[1:] == [f"ready at http://127.0.0.1:{port}", "the run has ended: ending the server"]
    assert nothing_is_left(mine.directory, stub)


def test_server_that_ends_first_is_told_with_its_code(tmp_path: Path, stub: Stub) -> None:
    stub.behave(lives=0.5)
    mine = service(tmp_path)
    with alive(mine.directory.lock), pytest.raises(RunError, match="vLLM ended by itself with exit code 7"):
        serve(mine, print)
    assert nothing_is_left(mine.directory, stub)


def test_server_that_ends_while_it_loads_does_not_cost_the_whole_wait(tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=60, lives=0.5)
    mine, started = service(tmp_path), time.monotonic()
    with alive(mine.directory.lock), pytest.raises(RunError, match="exit code 7"):
        serve(mine, print)
    assert time.monotonic() - started < 10
    assert nothing_is_left(mine.directory, stub)


def test_server_that_is_never_ready_is_ended(tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=60)
    mine = service(tmp_path, "vllm.server_timeout_seconds=0.5")
    with alive(mine.directory.lock), pytest.raises(RunError, match=r"did not answer within 0\.5 s"):
        serve(mine, print)
    assert nothing_is_left(mine.directory, stub)


def test_another_server_on_the_port_is_no_reason_to_go_on(tmp_path: Path, stub: Stub) -> None:
    stub.behave(serves="another")
    mine = service(tmp_path)
    with alive(mine.directory.lock), pytest.raises(RunError, match="serves another and"):
        serve(mine, print)
    assert nothing_is_left(mine.directory, stub)


@pytest.mark.parametrize("loads", [0.0, 60.0])
def test_signal_ends_it_while_it_serves_and_while_it_loads(loads: float, tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=loads)
    mine, before = service(tmp_path), signal.getsignal(signal.SIGTERM)
    is_there = stub.calls if loads else mine.directory.server.exists
    watcher = once(is_there, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with alive(mine.directory.lock):
        assert serve(mine, print) == 0
    watcher.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert nothing_is_left(mine.directory, stub)


def test_server_that_heeds_no_signal_is_killed(tmp_path: Path, stub: Stub) -> None:
    """Asked twice for 0.5 s each, then killed."""
    stub.behave(deaf=True)
    mine = service(tmp_path)
    watcher = once(mine.directory.server.exists, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with alive(mine.directory.lock):
        assert serve(mine, print) == 0
    watcher.join()
    assert nothing_is_left(mine.directory, stub)


def test_server_without_a_run_waits_for_one_only_so_long(tmp_path: Path, stub: Stub) -> None:
    told: list[str] = []
    mine = service(tmp_path, "vllm.server_timeout_seconds=2")
    assert serve(mine, told.append) == 0
    assert told[-1] == "no run has begun within 2 s (vllm.server_timeout_seconds): ending the server"
    assert nothing_is_left(mine.directory, stub)


def test_run_has_one_server(tmp_path: Path, stub: Stub) -> None:
    mine = service(tmp_path)
    with alive(mine.directory.server_lock), pytest.raises(OwnedError):
        serve(mine, print)
    assert stub.calls() == []


def test_two_runs_on_one_machine_take_different_ports(tmp_path: Path, stub: Stub) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        mine = service(tmp_path / name)
        run = Lock(mine.directory.lock)
        run.acquire()
        watcher = once(mine.directory.server.exists, run.release)
        serve(mine, print)
        watcher.join()
    ports = {call["words"][call["words"].index("--port") + 1] for call in stub.calls()}
    assert len(ports) == 2
