"""Readiness of a vLLM server against a server that answers what a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from grpo_exp.errors import RunError
from grpo_exp.sweeps.slurm.ports import find_ports
from grpo_exp.sweeps.slurm.wait_for_server import main, wait_for_server

READY = '{"object": "list", "data": [{"id": "Qwen/Qwen3-0.6B"}, {"id": "adapter"}]}'
Answer = tuple[int, str]


@contextmanager
def serving(answer: Callable[[int], Answer | None]) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server and the paths it was asked for.

    Args:
        answer: From the number of the request to status and body; None closes the connection without a word.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            told = answer(len(asked))
            if told is None:
                return
            self.send_response(told[0])
            self.end_headers()
            self.wfile.write(told[1].encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_returns_as_soon_as_the_model_is_listed() -> None:
    # 1: loading (503), 2: hangs up, 3: no JSON, 4: JSON that is no list of models, 5: ready.
    answers: list[Answer | None] = [(503, "loading"), None, (200, "<html>"), (200, '{"data": 3}'), (200, READY)]
    with serving(lambda number: answers[number - 1]) as (url, asked):
        wait_for_server(url, "Qwen/Qwen3-0.6B", timeout_seconds=10, poll_seconds=0.01)
    assert asked == ["/v1/models"] * 5


def test_server_of_another_model_is_refused_at_once() -> None:
    with serving(lambda number: (200, READY)) as (url, asked), pytest.raises(RunError) as caught:
        wait_for_server(url, "mine", timeout_seconds=60, poll_seconds=0.01)
    assert len(asked) == 1
    assert "serves Qwen/Qwen3-0.6B, adapter and mine is wanted" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "why"), [((404, ""), "HTTP status 404"), ((500, READY), "HTTP status 500"), (None, "closed connection")]
)
def test_server_that_never_gets_ready_ends_the_wait(answer: Answer | None, why: str) -> None:
    started = time.monotonic()
    with serving(lambda number: answer) as (url, asked), pytest.raises(RunError) as caught:
        wait_for_server(url, "mine", timeout_seconds=0.2, poll_seconds=0.05)
    assert 0.2 <= time.monotonic() - started < 5
    assert len(asked) >= 2
    assert f"did not answer within 0 s ({why}" in str(caught.value) or why in str(caught.value)


def test_server_that_dies_while_loading_ends_the_wait() -> None:
    """The batch script ends the wait sooner: it watches the server's process."""
    with serving(lambda number: (503, "loading")) as (url, _):
        pass  # it was there, and is gone
    with pytest.raises(RunError, match="refused"):
        wait_for_server(url, "mine", timeout_seconds=0.2, poll_seconds=0.05)


def test_command_says_what_was_wrong_and_returns_one(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = find_ports(["nobody"], {})
    code = main([f"--url=http://127.0.0.1:{port}", "--model=mine", "--timeout-seconds=0"])
    assert code == 1
    assert "hydra.launcher.server_timeout_seconds" in capsys.readouterr().err


def test_proxy_of_the_cluster_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with serving(lambda number: (200, READY)) as (url, _):
        wait_for_server(url, "adapter", timeout_seconds=5, poll_seconds=0.01)
