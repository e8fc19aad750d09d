"""Checker processes that die, and targets that got no verdict: neither says anything about the next answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.rewards import checker_process, targets
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.targets import PreparedTarget, prepare_text
from grpo_exp.rewards.worker_pool import WorkerPool

from .reward_cases import descendants, is_running


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """Return a pool of one process."""
    one = WorkerPool(1)
    yield one
    one.close()


def processes_of(pool: WorkerPool, before: set[int]) -> tuple[int, int]:
    """Return the supervisor and its fork, which are ready once one answer has come."""
    assert pool.ask("x", r"\frac{2x}{2}") == "match"
    supervisor, fork = sorted(descendants() - before)
    return supervisor, fork


def end(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_running(process) and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("which", [0, 1], ids=["supervisor", "fork"])
def test_process_that_died_idle_is_no_verdict_on_the_next_answer(pool: WorkerPool, which: int) -> None:
    before = descendants()
    end(processes_of(pool, before)[which])
    assert pool.ask("x", r"\frac{3x}{3}") == "match"
    assert pool.ask("x", r"\frac{3x}{4}") == "mismatch"
    assert len(descendants() - before) == 2  # one supervisor with one fork, as before


def test_answer_that_kills_two_processes_is_a_crash(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in ends at each request, and leaves a line for each start: two, and no third try."""
    starts = stand_in(tmp_path, monkeypatch, "print('{}', flush=True); input()")
    assert pool.ask("x", "y") == "crash"
    assert starts.read_text() == "start\n" * 2


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Path:
    """Put a module in the place of the checker; return the file with a line for each of its starts."""
    starts = tmp_path / "starts"
    (tmp_path / "stand_in_of_test.py").write_text(f"open({str(starts)!r}, 'a').write('start\\n')\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(checker_process, "_MODULE", "stand_in_of_test")
    return starts


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", r"signal 9 ended it \(Killed\)"),
        ("raise ImportError('no module x')", r"it ended with exit code 1(.|\n)*ImportError: no module x"),
    ],
)
def test_checker_that_dies_while_it_starts_is_tried_twice_and_told(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    starts = stand_in(tmp_path, monkeypatch, code)
    with pytest.raises(RunError, match=rf"died twice while it started: {message}"):
        pool.ask("x", "y")
    assert starts.read_text() == "start\n" * 2


def test_checker_that_dies_once_while_it_starts_is_started_again(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        f"first = open({str(tmp_path / 'starts')!r}).read() == 'start\\n'\n"
        "if first: raise SystemExit(3)\n"
        "print('{}', flush=True); input(); print('{\"reason\": \"match\"}', flush=True)"
    )
    starts = stand_in(tmp_path, monkeypatch, code)
    assert pool.ask("x", "y") == "match"
    assert starts.read_text() == "start\n" * 2


class Replies:
    """A pool whose replies are given."""

    def __init__(self, *replies: str) -> None:
        self.left = list(replies)

    def ask(self, gold: str, answer: str | None) -> str:
        return self.left.pop(0)


def give(monkeypatch: pytest.MonkeyPatch, *replies: str) -> Replies:
    pool = Replies(*replies)
    monkeypatch.setattr(targets, "shared_pool", lambda: pool)
    return pool


@pytest.mark.parametrize(("reply", "reason"), [("timeout", "target_timeout"), ("crash", "target_crash")])
def test_target_without_a_verdict_is_asked_again(monkeypatch: pytest.MonkeyPatch, reply: str, reason: str) -> None:
    text = rf"\sqrt{{x}}+{reply}_1"
    pool = give(monkeypatch, reply, "match")
    assert prepare_text(text) == Score(None, reason)
    assert isinstance(prepare_text(text), PreparedTarget)
    assert isinstance(prepare_text(text), PreparedTarget)  # remembered: there is no third reply
    assert pool.left == []


def test_target_that_never_gets_a_verdict_is_asked_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = give(monkeypatch, "timeout", "crash", "timeout", "match")
    found = [prepare_text(r"\sqrt{x}+never_1") for _ in range(5)]
    assert [score.reason for score in found if isinstance(score, Score)] == [
        "target_timeout", "target_crash", "target_timeout", "target_timeout", "target_timeout",
    ]  # fmt: skip
    assert pool.left == ["match"]


def test_verdict_of_a_target_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "unparsable")
    assert [prepare_text(r"\sqrt{x}+odd_1") for _ in range(3)] == [Score(None, "unparsable_target")] * 3
