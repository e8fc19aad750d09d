"""The local launcher: so many at a time, each with its share of the machine; failures and Ctrl-C stop no other run."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import devices
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import write_json
from grpo_exp.sweeps.local import launcher, pool
from grpo_exp.sweeps.local.settings import build_slots, check_local
from grpo_exp.sweeps.manifest import SweepDirectory, set_cancelled
from grpo_exp.sweeps.operations import cancel, start
from grpo_exp.sweeps.states import TO_RESUME, TO_RETRY, State, read_statuses
from unit.run_folder import a_console
from unit.sweeps.sweep_folder import STUB, a_sweep, finish


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "COMMAND", STUB)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.02)


def sweep_of(folder: Path, seeds: int, **told: Any) -> SweepDirectory:
    sweep = a_sweep(folder / "s", seeds=seeds)
    write_json(sweep.path / "stub.json", {"steps": 2, "step_seconds": 0.05, **told})
    return sweep


def records(sweep: SweepDirectory) -> list[dict[str, Any]]:
    file = sweep.path / "stub.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(sweep: SweepDirectory) -> list[State]:
    return [status.state for status in read_statuses(sweep)]


def most_at_once(found: list[dict[str, Any]]) -> int:
    return max(sum(other["began"] <= one["began"] < other["ended"] for other in found) for one in found)


def test_a_failed_run_is_told_and_the_others_finish(tmp_path: Path) -> None:
    sweep, (console, out) = sweep_of(tmp_path, 3, fails=[1]), a_console()
    assert start(sweep, TO_RESUME, console) == 1
    assert states(sweep) == ["completed", "failed", "completed"]
    told = out.getvalue()
    assert "failed     1 trainer.learning_rate=0.0001 seed=1" in told
    assert "RuntimeError: broken" in told
    assert "3 runs: 2 completed, 1 failed" in told
    assert f"grpo-exp sweep retry {sweep.path}" in told
    assert most_at_once(records(sweep)) == 1
    # Resuming leaves the failed one alone and is no success; retrying runs it alone.
    write_json(sweep.path / "stub.json", {"steps": 2, "step_seconds": 0.05})
    assert start(sweep, TO_RESUME, console) == 1
    assert len(records(sweep)) == 3
    assert start(sweep, TO_RETRY, console) == 0
    assert [record["index"] for record in records(sweep)] == [0, 1, 2, 1]


def test_two_slots_run_two_at_a_time_on_cores_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 runs on cores 0 to 3: two cores each."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    sweep, (console, _) = sweep_of(tmp_path, 4, step_seconds=0.2), a_console()
    assert start(sweep, TO_RESUME, console, changed={"slots": 2}) == 0
    found = records(sweep)
    assert most_at_once(found) == 2
    assert {record["options"][record["options"].index("--cores") + 1] for record in found} == {"0,1", "2,3"}


def test_ctrl_c_leaves_a_sweep_that_goes_on(tmp_path: Path) -> None:
    """The one that runs stops after its step, the others are not started; resuming finishes all of them."""
    sweep, (console, out) = sweep_of(tmp_path, 3, steps=200), a_console()
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while "running" not in states(sweep) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert start(sweep, TO_RESUME, console) == 85
    assert states(sweep) == ["stopped", "missing", "missing"]
    assert "stopping: 1 running stop after their step" in out.getvalue()
    assert f"to go on: the same command again, or grpo-exp sweep resume {sweep.path}" in out.getvalue()
    write_json(sweep.path / "stub.json", {"steps": 2, "step_seconds": 0.0})
    assert start(sweep, TO_RESUME, console) == 0
    assert states(sweep) == ["completed"] * 3
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_three_times_ends_what_does_not_stop(tmp_path: Path) -> None:
    """Once asks to stop, twice asks to end at once, and then the process is killed; its run is lost and can go on."""
    sweep, (console, out) = sweep_of(tmp_path, 2, steps=2000, ignores_stop=True), a_console()

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while "running" not in states(sweep) and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(3):
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert start(sweep, TO_RESUME, console) == 85
    assert states(sweep) == ["lost", "missing"]
    assert "ending the running ones at once" in out.getvalue()


def test_cancel_stops_what_runs_and_keeps_the_rest_from_starting(tmp_path: Path) -> None:
    sweep, (console, _) = sweep_of(tmp_path, 3, steps=200), a_console()
    done: list[Any] = []

    def cancel_soon() -> None:
        deadline = time.monotonic() + 20
        while "running" not in states(sweep) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        done.append(cancel(sweep, wait_seconds=20))

    canceller = threading.Thread(target=cancel_soon)
    canceller.start()
    assert start(sweep, TO_RESUME, console) == 85
    canceller.join()
    assert (done[0].num_marked, done[0].num_running) == (3, 0)
    assert states(sweep) == ["cancelled"] * 3
    assert len(records(sweep)) == 1
    write_json(sweep.path / "stub.json", {"steps": 2, "step_seconds": 0.0})
    assert start(sweep, TO_RESUME, console) == 0  # resuming takes the marks away
    assert sweep.read_cancelled() == set()


def test_what_others_did_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    """Chosen as missing; before its turn another process completed the first and failed the second."""
    sweep, (console, out) = sweep_of(tmp_path, 3), a_console()
    chosen = read_statuses(sweep)
    finish(sweep.run(chosen[0].entry))
    finish(sweep.run(chosen[1].entry), status="failed", exit_code=1)
    set_cancelled(sweep, add=[chosen[2].entry.run_directory])
    assert launcher.start(sweep, chosen, {}, console) == 1
    assert records(sweep) == []
    assert out.getvalue().count("by another process") == 3


@pytest.mark.parametrize(
    ("visible", "per_run", "num_processes", "expected"),
    [
        (None, None, 1, ["0", "1"]),  # 4 GPUs, one for each process of a run
        (None, None, 2, ["0,1", "2,3"]),
        ("3,1,2", None, 1, ["3", "1"]),
        (None, 0, 1, [None, None]),
    ],
)
def test_gpus_are_shared_out(
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    per_run: int | None,
    num_processes: int,
    expected: list[str | None],
) -> None:
    monkeypatch.setattr(devices, "_count_installed", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    settings = check_local({"slots": 2, "gpus_per_run": per_run})
    slots = build_slots(settings, num_processes=num_processes, uses_cpu=False)
    assert [slot.gpus for slot in slots] == expected


def test_a_run_gets_the_gpus_of_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_count_installed", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    sweep, (console, _) = sweep_of(tmp_path, 2, step_seconds=0.2), a_console()
    values = {"slots": 2, "gpus_per_run": 1}
    assert launcher.start(sweep, read_statuses(sweep), values, console) == 0
    assert sorted(record["gpus"] for record in records(sweep)) == ["0", "1"]


def test_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 slots x 2 GPUs = 6 of 4; 4 // 2 = 2 slots fit."""
    monkeypatch.setattr(devices, "_count_installed", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(ConfigError, match=r"6 are wanted and 4 are visible; use hydra.launcher.slots=2 or less"):
        build_slots(check_local({"slots": 3}), num_processes=2, uses_cpu=False)


@pytest.mark.parametrize(
    ("cores", "slots", "expected"),
    [
        ({0, 1, 2}, 2, [(0,), (1, 2)]),
        ({4, 5}, 3, [(4,), (5,), (4,)]),
        ({0, 1}, 1, [()]),
    ],
)
def test_cores_are_shared_out(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], slots: int, expected: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    found = build_slots(check_local({"slots": slots}), num_processes=1, uses_cpu=True)
    assert [slot.cores for slot in found] == expected
