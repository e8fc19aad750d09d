"""A run and its server: found, checked and told to the workers; one that the run started is ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_exp import devices
from grpo_exp.errors import RunError
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.attachment import Attachment, attached
from grpo_exp.serving.place import placed, reach_directly, read_address, server_url, tell_address
from grpo_exp.serving.readiness import ServerWaitEndedError
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.vllm import ServerVllm
from stub_server import Answers, build_server
from unit.run_folder import settings_of
from unit.serving.served_run import Stub, alive, begun_run, is_alive, served_settings


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(devices, "list_visible_gpus", lambda: ["3", "5", "7"])
    return Stub(tmp_path / "calls.jsonl", monkeypatch)


@contextlib.contextmanager
def running(model: str) -> Iterator[int]:
    """Run a server that was there before, and yield its port."""
    server = build_server(Answers(model).to)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def vllm_of(settings: RunSettings, directory: RunDirectory) -> ServerVllm:
    vllm = placed(settings, directory).vllm
    assert vllm.mode == "server"
    return vllm


def use(directory: RunDirectory, settings: RunSettings) -> Attachment:
    """Attach and detach at once."""
    with attached(directory, settings, tell=print) as found:
        return found


def test_run_without_a_server_needs_none(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "vllm=off")
    found = use(begun_run(tmp_path, settings), settings)
    assert (found.gpus, found.why_ended()) == (None, None)


def test_last_gpus_serve_and_the_others_train(tmp_path: Path, stub: Stub) -> None:
    """GPUs 3, 5 and 7 are visible and two serve: 5 and 7, with one copy of the model on both."""
    settings = served_settings(tmp_path, "vllm.num_gpus=2")
    directory = begun_run(tmp_path, settings)
    with alive(directory.lock), attached(directory, settings, tell=print) as found:
        assert (found.gpus, found.why_ended()) == ("3", None)
        (call,) = stub.calls()
        words = call["words"]
        assert call["gpus"] == "5,7"
        assert words[words.index("--host") + 1] == "127.0.0.1"  # nobody else has to reach it
        assert words[words.index("--tensor-parallel-size") + 1] == "2"
        vllm = vllm_of(settings, directory)
        assert server_url(vllm) == f"http://127.0.0.1:{words[words.index('--port') + 1]}"
        assert vllm.group_port not in {None, vllm.server_port}
    assert not is_alive(call["pid"])
    assert not directory.server.exists()
    assert "ready at" in directory.server_log.read_text()


def test_own_server_that_ends_is_noticed(tmp_path: Path, stub: Stub) -> None:
    settings = served_settings(tmp_path, "vllm.num_gpus=1")
    directory = begun_run(tmp_path, settings)
    with alive(directory.lock), attached(directory, settings, tell=print) as found:
        assert found.gpus == "3,5"
        os.kill(stub.calls()[0]["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 15
        while found.why_ended() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        reason = found.why_ended()
    assert reason == (
        f"the vLLM server of this run has ended with exit code 1; what it prints stands in {directory.server_log}"
    )
    assert "vLLM ended by itself with exit code -9" in directory.server_log.read_text()


def test_own_server_that_ends_before_it_is_ready_ends_the_wait(tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=60, lives=0.3)
    settings = served_settings(tmp_path, "vllm.num_gpus=1")
    directory = begun_run(tmp_path, settings)
    with alive(directory.lock), pytest.raises(RunError, match="has ended with exit code 1"):
        use(directory, settings)


def test_wait_for_an_own_server_can_be_called_off(tmp_path: Path, stub: Stub) -> None:
    stub.behave(loads=60)
    settings = served_settings(tmp_path, "vllm.num_gpus=1")
    directory = begun_run(tmp_path, settings)
    with (
        alive(directory.lock),
        pytest.raises(ServerWaitEndedError, match="stop"),
        attached(directory, settings, tell=print, why_over=lambda: "stop" if stub.calls() else None),
    ):
        pass
    assert not is_alive(stub.calls()[0]["pid"])


def test_server_that_is_already_there_is_checked_and_used(tmp_path: Path) -> None:
    model = str(tmp_path / "the model")
    with running(model) as port:
        settings = served_settings(tmp_path, f"vllm.server_port={port}", "vllm.group_port=23456")
        directory = begun_run(tmp_path, settings)
        found = use(directory, settings)
    assert (found.gpus, found.why_ended()) == (None, None)
    vllm = vllm_of(settings, directory)
    assert (vllm.server_host, vllm.server_port, vllm.group_port) == ("127.0.0.1", port, 23456)


def test_server_by_its_address(tmp_path: Path) -> None:
    with running(str(tmp_path / "the model")) as port:
        settings = served_settings(tmp_path, f"vllm.server_base_url=http://127.0.0.1:{port}/")
        directory = begun_run(tmp_path, settings)
        use(directory, settings)
    vllm = vllm_of(settings, directory)
    assert server_url(vllm) == f"http://127.0.0.1:{port}"
    assert vllm.group_port is not None


def test_server_of_another_model_is_not_used(tmp_path: Path) -> None:
    with running("another") as port:
        settings = served_settings(tmp_path, f"vllm.server_port={port}")
        directory = begun_run(tmp_path, settings)
        with pytest.raises(RunError, match="serves another and"):
            use(directory, settings)
    assert not directory.server_place.exists()


def test_server_that_somebody_looks_after_is_found_through_the_folder(tmp_path: Path) -> None:
    """What `grpo-exp serve RUN` writes; it is believed for as long as that process lives."""
    settings, told = served_settings(tmp_path), list[str]()
    directory = begun_run(tmp_path, settings)
    with running(str(tmp_path / "the model")) as port:
        with alive(directory.server_lock):
            tell_address(directory, host="a name that only other machines need", port=port)
            with attached(directory, settings, tell=told.append) as found:
                assert found.why_ended() is None
        assert found.why_ended() is not None
    assert server_url(vllm_of(settings, directory)) == f"http://127.0.0.1:{port}"
    assert told[0] == f"waiting for its vLLM server: grpo-exp serve {directory.path}"


def test_address_of_a_server_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    settings = served_settings(tmp_path, "vllm.server_timeout_seconds=0.5")
    directory = begun_run(tmp_path, settings)
    tell_address(directory, host="127.0.0.1", port=1)
    with pytest.raises(RunError, match=r"no vLLM server was ready within 0\.5 s; start it with grpo-exp serve"):
        use(directory, settings)


def test_folder_of_a_run_says_where_its_server_is(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert read_address(directory) is None
    tell_address(directory, host="n3", port=21)
    assert read_address(directory) == ("n3", 21)
    assert json.loads(directory.server.read_text()) == {"host": "n3", "port": 21}


def test_clients_of_a_server_on_a_node_ask_no_proxy(tmp_path: Path) -> None:
    vllm = served_settings(tmp_path, "vllm.server_host=n3", "vllm.server_port=21").vllm
    assert vllm.mode == "server"
    environ = {"NO_PROXY": "a.b"}
    reach_directly(vllm, environ)
    assert environ == {"NO_PROXY": "a.b,n3,127.0.0.1,localhost", "no_proxy": "n3,127.0.0.1,localhost"}
