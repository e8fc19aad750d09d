"""A process that shows no sign of life is ended with its stacks; one that lives, or was suspended, is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_exp.settings.launch import WatchdogSettings
from grpo_exp.watchdog import TRAINING, Watchdog

#: Argument 1: file for the stacks. 2: what the main thread does. 3: the least limit. Three steps of 0.1 s, then that;
#: factor 2 and at least 1.5 s: the limit is max(1.5, 2 * 0.1) = 1.5 s.
PROCESS = """
import os, sys, time, ctypes
from pathlib import Path
from grpo_exp import watchdog
from grpo_exp.settings.launch import WatchdogSettings
watchdog.GRACE_SECONDS = 0.5
watchdog._CHECK_SECONDS = 0.2

def end(reason):
    print(reason, flush=True)
    os._exit(7)

def waits_for_ever():
    time.sleep(600)

def hangs_in_a_library():
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter lock

def goes_on():
    for _ in range(8):
        time.sleep(0.5)
        dog.on_step()

def takes_a_step_until_told():
    sys.stdin.readline()
    dog.on_step()

settings = WatchdogSettings(factor=2, min_seconds=float(sys.argv[3]), start_seconds=60)
with watchdog.Watchdog(settings, Path(sys.argv[1]), end) as dog:
    dog.on_phase("training")
    for _ in range(3):
        time.sleep(0.1)
        dog.on_step()
    print("ready", flush=True)
    globals()[sys.argv[2]]()
print("lived", flush=True)
"""


def start(stacks: Path, what: str, min_seconds: float = 1.5) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(stacks), what, str(min_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_process_that_sleeps_for_ever_is_ended_and_the_stack_shows_where(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks-0.txt"
    process = start(stacks, "waits_for_ever")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 7, out
    assert "no step for 2 s, where the median takes 0.1" in out  # 1.5 rounds to 2
    assert f"{tmp_path}/stacks-*.txt" in out
    assert "in waits_for_ever" in stacks.read_text()


def test_process_that_hangs_inside_of_a_library_leaves_its_stack_all_the_same(tmp_path: Path) -> None:
    """No Python runs any more; the timer behind the stacks needs none. The front end ends such a process."""
    stacks = tmp_path / "stacks-0.txt"
    process = start(stacks, "hangs_in_a_library")
    try:
        deadline = time.monotonic() + 20
        while not stacks.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "in hangs_in_a_library" in stacks.read_text()
    finally:
        process.kill()
        process.communicate()


def test_steps_within_the_limit_are_left_alone(tmp_path: Path) -> None:
    """Eight steps of 0.5 s against a limit of 3 s; the whole is longer than the limit and the grace of 0.5 s."""
    stacks = tmp_path / "stacks-0.txt"
    process = start(stacks, "goes_on", min_seconds=3)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "lived\n")
    assert not stacks.exists()


def test_time_in_which_the_process_was_suspended_does_not_count(tmp_path: Path) -> None:
    """Suspended for 5 s, which is beyond the limit of 3 s and the grace of 0.5 s; awake for 1 s behind it.

    Nor do stacks stay, which the timer writes as soon as it can: the front end would end a worker for them. The second
    awake is five checks of the watchdog; the other 2.5 s are for a machine that gives neither process its turn.
    """
    stacks = tmp_path / "stacks-0.txt"
    process = start(stacks, "takes_a_step_until_told", min_seconds=3)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(1)
    out, _ = process.communicate("go on\n", timeout=30)
    assert (process.returncode, out) == (0, "lived\n")
    assert not stacks.exists()


def test_limit_is_that_of_the_start_until_three_steps_are_known_and_in_other_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Median of 100, 100 and 400 s is 100 s: times 20 is 2000 s."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    dog = Watchdog(WatchdogSettings(factor=20, min_seconds=900, start_seconds=3600), tmp_path / "s", print)
    dog.on_phase(TRAINING)
    for seconds, limit in ((100, 3600), (400, 3600), (100, 2000)):
        now += seconds
        dog.on_step()
        assert dog.limit_seconds == limit
    dog.on_phase("saving a checkpoint")
    assert dog.limit_seconds == 3600
    dog.on_phase(TRAINING)
    assert dog.limit_seconds == 2000  # how long a step takes is known
    for _ in range(4):  # 1 s each: 20 s, but at least 900 s
        now += 1
        dog.on_step()
    assert dog.limit_seconds == 900


def test_switched_off_it_does_nothing(tmp_path: Path) -> None:
    with Watchdog(WatchdogSettings(enabled=False, start_seconds=0.1), tmp_path / "s", print) as dog:
        dog.on_phase(TRAINING)
        time.sleep(0.3)
    assert not (tmp_path / "s").exists()
