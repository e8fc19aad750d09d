"""Readiness and identity of a vLLM server, against a server that answers what a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.ports import find_ports
from grpo_exp.serving.readiness import ServerWaitEndedError, Wanted, server_health, wait_for_server, wanted_of
from grpo_exp.settings import load
from stub_server import Answer, Answers, build_server

GOOD = Answers("Qwen/Qwen3-0.6B")
WANTED = Wanted("Qwen/Qwen3-0.6B")


@contextmanager
def serving(answer: Callable[[str, int], Answer | None]) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server and the paths it was asked for.

    Args:
        answer: From the path and the number of the request to status and body; None hangs up.
    """
    asked: list[str] = []

    def told(path: str) -> Answer | None:
        asked.append(path)
        return answer(path, len(asked))

    server = build_server(told)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_returns_as_soon_as_the_model_is_listed() -> None:
    # 1: loading (503), 2: hangs up, 3: no JSON, 4 and 5: JSON that is no list of models, then ready.
    early: list[Answer | None] = [(503, "loading"), None, (200, "<html>"), (200, '{"data": 3}'), (200, "[]")]
    with serving(lambda path, number: early[number - 1] if number <= 5 else GOOD.to(path)) as (url, asked):
        wait_for_server(url, WANTED, timeout_seconds=10, poll_seconds=0.01)
    assert asked == ["/v1/models"] * 6 + ["/server_info?config_format=json"]


@pytest.mark.parametrize(
    ("answers", "wanted", "message"),
    [
        (GOOD, Wanted("mine"), "serves Qwen/Qwen3-0.6B and mine is wanted"),
        (Answers("m", length=1024), Wanted("m", length=1025), "holds 1024 tokens of a sequence"),
        (Answers("m", dev_mode=False), Wanted("m"), "start it with VLLM_SERVER_DEV_MODE=1"),
        (Answers("m", takes_weights=False), Wanted("m"), 'start it with --weight-transfer-config \'{"backend"'),
        (Answers("m", logprobs_mode="raw_logprobs"), Wanted("m"), "tells raw_logprobs instead of the probabilities"),
    ],
)  # fmt: skip
def test_server_that_would_not_do_is_refused_at_once(answers: Answers, wanted: Wanted, message: str) -> None:
    started = time.monotonic()
    with serving(lambda path, number: answers.to(path)) as (url, asked), pytest.raises(RunError) as caught:
        wait_for_server(url, wanted, timeout_seconds=60, poll_seconds=0.01)
    assert time.monotonic() - started < 10
    assert asked.count("/v1/models") == 1
    assert message in str(caught.value)


def test_server_that_does_is_taken() -> None:
    """Just long enough; and without the importance correction nobody looks at the log-probabilities."""
    raw = Answers("m", length=1024, logprobs_mode="raw_logprobs")
    with serving(lambda path, number: raw.to(path)) as (url, _):
        wait_for_server(url, Wanted("m", length=1024, processed_logprobs=False), timeout_seconds=5, poll_seconds=0.01)


@pytest.mark.parametrize(
    ("answer", "why"),
    [((404, ""), "HTTP status 404"), ((500, GOOD.to("/v1/models")[1]), "HTTP status 500"), (None, "closed connection")],
)
def test_server_that_never_gets_ready_ends_the_wait(answer: Answer | None, why: str) -> None:
    started = time.monotonic()
    with serving(lambda path, number: answer) as (url, asked), pytest.raises(RunError) as caught:
        wait_for_server(url, WANTED, timeout_seconds=0.2, poll_seconds=0.05)
    assert 0.2 <= time.monotonic() - started < 5
    assert len(asked) >= 2
    assert "did not answer within 0.2 s (" in str(caught.value)
    assert why in str(caught.value)


def test_server_that_dies_while_loading_is_told_as_refused() -> None:
    with serving(lambda path, number: (503, "loading")) as (url, _):
        pass  # it was there, and is gone
    with pytest.raises(RunError, match="refused"):
        wait_for_server(url, WANTED, timeout_seconds=0.2, poll_seconds=0.05)


def test_wait_can_be_called_off() -> None:
    reasons = iter([None, None, "nobody needs it"])
    with (
        serving(lambda path, number: (503, "loading")) as (url, asked),
        pytest.raises(ServerWaitEndedError, match="nobody needs it"),
    ):
        wait_for_server(url, WANTED, timeout_seconds=60, poll_seconds=0.01, why_over=lambda: next(reasons))
    assert len(asked) == 2


def test_proxy_of_the_cluster_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with serving(lambda path, number: GOOD.to(path)) as (url, _):
        wait_for_server(url, WANTED, timeout_seconds=5, poll_seconds=0.01)
        assert server_health(url) == "HTTP 200"


def test_health_is_one_line_whatever_happens() -> None:
    with serving(lambda path, number: (503, "")) as (url, asked):
        assert server_health(url) == "HTTP 503"
        assert asked == ["/health"]
    (port,) = find_ports(["nobody"], [])
    assert server_health(f"http://127.0.0.1:{port}").startswith("no answer (")
    assert server_health("no address").startswith("no answer (")


def test_run_wants_its_model_and_room_for_a_completion(tmp_path: Path) -> None:
    """A prompt has at least one token: 1 + 100. With a length of its own the server must hold that."""
    words = ["vllm=server", "model=local", f"model.path={tmp_path}", "trainer.max_completion_length=100"]
    assert wanted_of(load.to_settings(load.compose(words))) == Wanted(str(tmp_path), 101)
    limited = [*words, "dataset.max_prompt_length=50"]
    assert wanted_of(load.to_settings(load.compose(limited))) == Wanted(str(tmp_path), 50 + 100)
    longer = [*words, "vllm.max_model_length=300", "vllm.importance_sampling_correction=false"]
    assert wanted_of(load.to_settings(load.compose(longer))) == Wanted(str(tmp_path), 300, processed_logprobs=False)
