"""`check --deep`: gold answers, room, ports and trackers, each on the side where it is right and where it is not."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from grpo_exp import devices
from grpo_exp.deep_check import DeepCheck, deep_check
from grpo_exp.preflight import prepare
from grpo_exp.settings import load


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)


def check(*words: str) -> DeepCheck:
    settings = load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words]))
    return deep_check(settings, prepare(settings))


def line(found: DeepCheck, start: str) -> str:
    (only,) = [text for text in found.lines if text.startswith(start)]
    return only


def test_built_in_run_is_sound() -> None:
    """`19+24?` is six characters, and two tags: 8 tokens at most."""
    found = check()
    assert found.faults == []
    assert "to 8 tokens" in line(found, "tokens")
    assert "32 of 32 right answers, and for 0 of 32 empty" in line(found, "gold")


def nothing(prompts: list[object], completions: list[object], **columns: object) -> list[float]:
    """Pay for no answer."""
    return [0.0 for _ in completions]


def anything(prompts: list[object], completions: list[object], **columns: object) -> list[float]:
    """Pay for every answer."""
    return [1.0 for _ in completions]


def judged_by(function: str) -> list[str]:
    component = f"{{kind: python, function: 'unit.test_deep_check:{function}'}}"
    return check("reward=math_only", f"+reward.components.mine={component}", "reward.primary=mine").faults


def test_reward_that_pays_for_no_gold_answer_is_a_fault() -> None:
    (fault,) = judged_by("nothing")
    assert fault.startswith("reward.components.mine: pays for none of 32 gold answers")


def test_reward_that_pays_for_saying_nothing_is_a_fault() -> None:
    (fault,) = judged_by("anything")
    assert fault.startswith("reward.components.mine: pays for 32 of 32 empty answers")


def test_room_that_does_not_suffice_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """About 0.9 million weights of 4 bytes with two moments each are 10 MB a checkpoint."""
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    (fault,) = check().faults
    assert fault.startswith("output_dir=")
    assert not check("trainer.checkpoint.enabled=false", "trainer.save_model=false").faults


def test_port_that_is_taken_is_a_fault() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (fault,) = check("launch=ddp", f"launch.main_process_port={port}").faults
    assert fault.startswith(f"launch.main_process_port={port}: somebody listens")
    assert f"={port} is free" in line(check("launch=ddp", f"launch.main_process_port={port}"), "port")


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """Return the address of something that answers as MLflow does."""
    with HTTPServer(("127.0.0.1", 0), _Healthy) as served:
        thread = threading.Thread(target=served.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_tracker_is_asked_and_its_silence_is_no_fault(server: str) -> None:
    there = check("tracker=mlflow", f"tracker.mlflow.tracking_uri={server}")
    assert line(there, "tracker").endswith("answers with status 200")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = check("tracker=mlflow", f"tracker.mlflow.tracking_uri=http://user:secret@127.0.0.1:{port}")
    assert "does not answer (ConnectionRefusedError" in line(gone, "tracker")
    assert "secret" not in line(gone, "tracker")
    assert not gone.faults
