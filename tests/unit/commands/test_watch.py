"""`grpo-exp watch`: what there is, what comes, how it ended, and when nobody is alive; from files alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp.commands import watch
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, write_json
from grpo_exp.tracking.metrics_log import MetricsLog
from integration.command import wait_for
from unit.run_folder import a_result, settings_of


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run of 5 steps in its first attempt, that came to step 2."""
    monkeypatch.setenv("GRPO_EXP_PROGRESS", "plain")
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    directory = find_or_create(tmp_path / "outputs" / "demo", "abc-s0", resume=True)
    start_attempt(directory)
    add_step(directory, 1)
    add_step(directory, 2)
    return directory


def start_attempt(directory: RunDirectory, *words: str) -> None:
    begin_attempt(directory)
    write_json(directory.config_json, settings_of(directory.path.parents[2], *words).model_dump(mode="json"))


def add_step(directory: RunDirectory, step: int) -> None:
    with MetricsLog(directory.metrics) as log:
        log.append(step, {"train/reward": step / 10, "train/loss": 0.0}, time.time())


class Watching:
    """Watches in a thread, as somebody at another terminal does."""

    def __init__(self, directory: RunDirectory) -> None:
        self.out = io.StringIO()
        self.code: int | None = None
        self._thread = threading.Thread(target=self._watch, args=(directory,))
        self._thread.start()

    def _watch(self, directory: RunDirectory) -> None:
        self.code = watch.watch(directory, build_console(self.out))

    def wait_for(self, text: str) -> None:
        wait_for(lambda: text in self.out.getvalue(), seconds=10, what=f"{text!r} in {self.out.getvalue()!r}")

    def end(self) -> str:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.out.getvalue()


@pytest.fixture
def watching(directory: RunDirectory) -> Callable[[], Watching]:
    return lambda: Watching(directory)


@pytest.mark.parametrize("code", [0, 1, 3, 85])
def test_run_is_followed_to_its_end_and_its_exit_code(
    code: int, directory: RunDirectory, watching: Callable[[], Watching]
) -> None:
    lock = Lock(directory.lock)
    lock.acquire()
    watcher = watching()
    watcher.wait_for("2/5")
    directory.add_event("note", "the model has dropout")
    add_step(directory, 3)
    watcher.wait_for("3/5")
    add_step(directory, 4)
    write_json(directory.result, a_result(exit_code=code, steps=4, reason="so it was"))
    lock.release()
    text = watcher.end()
    assert watcher.code == code
    assert [f"{step}/5" in text for step in (1, 2, 3, 4)] == [True] * 4
    assert "note: the model has dropout" in text
    assert "Completed after 4 steps in 0:12: so it was" in text
    assert "no sign of life" not in text


def test_run_that_has_ended_is_shown_whole(directory: RunDirectory, watching: Callable[[], Watching]) -> None:
    write_json(directory.result, a_result(steps=2))
    text = watching().end()
    assert "1/5" in text
    assert "Completed after 2 steps" in text


def test_owner_that_is_gone_is_told_once_and_a_new_attempt_is_followed(
    directory: RunDirectory, watching: Callable[[], Watching]
) -> None:
    """Process 1 of this machine did not start at tick -1, so the owner has ended. Its heart beat 90 s ago: 1:30."""
    directory.lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "start": "-1"}))
    os.utime(directory.lock, (time.time() - 90,) * 2)
    watcher = watching()
    watcher.wait_for("no sign of life of process 1")
    time.sleep(0.1)
    directory.lock.unlink()
    lock = Lock(directory.lock)
    lock.acquire()
    start_attempt(directory)
    watcher.wait_for("attempt 2 has begun")
    add_step(directory, 1)
    watcher.wait_for("attempt 2 has begun\n")
    write_json(directory.result, a_result(steps=1))
    lock.release()
    text = watcher.end()
    assert "(1:3" in text  # 90 s and a little
    assert text.count("no sign of life") == 1
    assert text.count("1/5") == 2
    assert watcher.code == 0


def test_run_that_is_made_longer_meanwhile_has_its_new_number_of_steps(
    directory: RunDirectory, watching: Callable[[], Watching]
) -> None:
    lock = Lock(directory.lock)
    lock.acquire()
    watcher = watching()
    watcher.wait_for("2/5")
    start_attempt(directory, "trainer.max_steps=9")
    watcher.wait_for("attempt 2 has begun")
    add_step(directory, 7)
    watcher.wait_for("7/9")
    write_json(directory.result, a_result(steps=7))
    lock.release()
    assert "7/5" not in watcher.end()


def test_heart_on_another_machine_counts_by_its_age(directory: RunDirectory, watching: Callable[[], Watching]) -> None:
    """Its process cannot be looked at: a beat of a minute ago is alive, one of three minutes is not."""
    directory.lock.write_text(json.dumps({"host": "elsewhere", "pid": 7, "start": "1"}))
    os.utime(directory.lock, (time.time() - 60,) * 2)
    watcher = watching()
    watcher.wait_for("2/5")
    assert "no sign of life" not in watcher.out.getvalue()
    os.utime(directory.lock, (time.time() - 180,) * 2)
    watcher.wait_for("no sign of life of process 7 on elsewhere since")
    os.utime(directory.lock)
    watcher.wait_for("the run gives signs of life again")
    write_json(directory.result, a_result())
    watcher.end()


def test_run_that_nobody_owns_says_when_it_was_last_seen(
    directory: RunDirectory, watching: Callable[[], Watching]
) -> None:
    os.utime(directory.metrics, (86_400.0 * 366,) * 2)  # at the beginning of 1971
    watcher = watching()
    watcher.wait_for("nobody owns the run, whose last sign was at 1971-01-0")
    write_json(directory.result, a_result())
    watcher.end()


def test_several_runs_below_a_folder_are_listed(directory: RunDirectory) -> None:
    other = find_or_create(directory.path.parent, "abc-s1", resume=True)
    start_attempt(other)
    (other.path / "model").mkdir()
    (other.path / "model" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds 2 runs; give one of them, newest first") as caught:
        watch.main([str(directory.path.parents[1])])
    assert {line.strip() for line in str(caught.value).splitlines()[1:]} == {str(directory.path), str(other.path)}
    with pytest.raises(ConfigError, match="there is no such folder"):
        watch.main([str(directory.path / "nothing")])
    with pytest.raises(ConfigError, match="holds no run"):
        watch.main([str(other.path / "model")])


def test_command_on_a_terminal_starts_without_torch_and_leaves_the_run_alone_at_ctrl_c(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of its own on a pseudo-terminal, with the folder above the run: the live table, then Ctrl-C."""
    for name in ("GRPO_EXP_PROGRESS", "SLURM_JOB_ID", "CI", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    lock = Lock(directory.lock)
    lock.acquire()
    code = (
        "import sys, grpo_exp.__main__ as m\n"
        "heavy = {'torch', 'transformers', 'trl', 'mlflow', 'wandb', 'datasets'}\n"
        "try:\n    m.main(['watch', sys.argv[1]])\n"
        "finally:\n    print(sorted(heavy & set(sys.modules)))"
    )
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", code, str(directory.path.parents[1])]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    os.set_blocking(leader, False)
    shown = b""

    def read() -> bytes:
        nonlocal shown
        with contextlib.suppress(OSError):  # nothing there yet, or the other end is closed
            shown += os.read(leader, 65536)
        return shown

    wait_for(lambda: b"2/5" in read(), seconds=30, what="the table")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: process.poll() is not None, seconds=10, what="the end")
    text = read().decode()
    os.close(leader)
    assert process.returncode == 130
    assert "no longer watching; the run was left alone" in text
    assert text.rstrip().endswith("[]")
    assert "\x1b[" in text  # drawn in place
    assert "Traceback" not in text
    assert {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()} == before
    assert lock.is_held()
    lock.release()
