"""One run of a sweep: of several processes that are started for it only one goes on."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from rich.console import Console

from grpo_exp import point_run
from grpo_exp.composition import RunRequest
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.point_run import Terms, run_point
from grpo_exp.run_lock import Lock
from grpo_exp.sweeps.manifest import SweepDirectory, set_cancelled
from grpo_exp.sweeps.states import read_statuses
from unit.run_folder import a_console
from unit.sweeps.sweep_folder import a_sweep, finish


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDirectory:
    """A sweep of two runs; a run appends its folder and process to `ran` and completes."""
    sweep = a_sweep(tmp_path / "s", seeds=2)

    def run(request: RunRequest, console: object) -> int:
        folder = Path(request.settings.output_dir) / request.settings.name
        entry = sweep.read_entry(request.settings.seed)
        with (folder / "ran").open("a") as stream:
            stream.write(f"{entry.run_directory}\n")
        time.sleep(0.2)
        finish(sweep.run(entry))
        return 0

    monkeypatch.setattr(point_run, "run", run)
    return sweep


def ran(sweep: SweepDirectory) -> list[str]:
    file = sweep.path / "ran"
    return file.read_text().splitlines() if file.exists() else []


def test_a_point_is_run_with_its_settings_and_then_found_done(sweep: SweepDirectory) -> None:
    console, out = a_console()
    assert run_point(sweep, 1, Terms(), console) == 0
    assert ran(sweep) == [sweep.read_entry(1).run_directory]
    assert run_point(sweep, 1, Terms(), console) == 0
    assert "done already" in out.getvalue()
    assert len(ran(sweep)) == 1


def test_a_point_that_was_made_longer_is_run_again(sweep: SweepDirectory) -> None:
    console, _ = a_console()
    assert run_point(sweep, 0, Terms(), console) == 0  # two steps
    settings = sweep.settings.read_text().replace('"max_steps": 2', '"max_steps": 3')
    sweep.settings.write_text(settings)
    sweep.manifest.write_text(sweep.manifest.read_text().replace('"max_steps": 2', '"max_steps": 3'))
    assert read_statuses(sweep)[0].reason == "2 steps are done, and 3 are asked for now"
    assert run_point(sweep, 0, Terms(), console) == 0
    assert len(ran(sweep)) == 2


def start_at(sweep: SweepDirectory, moment: float) -> None:
    console, _ = a_console()
    time.sleep(max(0.0, moment - time.time()))
    os._exit(run_point(sweep, 0, Terms(attempt=0), console))


def test_of_six_processes_at_the_same_moment_one_runs(sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs for a second, in which the others come."""
    run = point_run.run

    def run_slowly(request: RunRequest, console: Console) -> int:
        time.sleep(1)
        return run(request, console)

    monkeypatch.setattr(point_run, "run", run_slowly)
    fork, moment = multiprocessing.get_context("fork"), time.time() + 0.5
    processes = [fork.Process(target=start_at, args=(sweep, moment)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    # The others find it claimed (4), or come so late that it is done (0).
    assert {process.exitcode for process in processes} <= {0, 4}
    assert 4 in {process.exitcode for process in processes}
    assert len(ran(sweep)) == 1


def test_a_point_with_a_live_owner_is_left_alone(sweep: SweepDirectory) -> None:
    directory = sweep.run(sweep.read_entry(0))
    directory.path.mkdir()
    lock = Lock(directory.lock)
    lock.acquire()
    console, out = a_console()
    started = time.monotonic()
    assert run_point(sweep, 0, Terms(wait_seconds=0.5), console) == 4
    assert time.monotonic() - started >= 0.5
    assert lock.is_held()
    lock.release()
    assert "going on in another process" in out.getvalue()
    assert ran(sweep) == []


def test_a_point_that_others_ran_meanwhile_is_left_alone(sweep: SweepDirectory) -> None:
    """It was chosen before its first attempt, and has had one since, which failed."""
    finish(sweep.run(sweep.read_entry(0)), status="failed", exit_code=1)
    console, out = a_console()
    assert run_point(sweep, 0, Terms(attempt=0), console) == 4
    assert "another process has run it meanwhile (attempt 1)" in out.getvalue()
    assert run_point(sweep, 0, Terms(attempt=1), console) == 0
    assert len(ran(sweep)) == 1


def test_a_cancelled_point_is_not_started(sweep: SweepDirectory) -> None:
    set_cancelled(sweep, add=[sweep.read_entry(0).run_directory])
    console, out = a_console()
    assert run_point(sweep, 0, Terms(), console) == 4
    assert "it was cancelled" in out.getvalue()
    assert ran(sweep) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("output_dir=x: cannot be written"), "output_dir=x: cannot be written"),
        (RunError("no room"), "no room"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_a_run_that_ends_before_its_folder_can_say_so_leaves_its_reason(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def run(request: object, console: object) -> int:
        raise error

    working = point_run.run
    console, _ = a_console()
    with monkeypatch.context() as patch:
        patch.setattr(point_run, "run", run)
        with pytest.raises(type(error)):
            run_point(sweep, 0, Terms(), console)
    (status, _) = read_statuses(sweep)
    assert (status.state, status.reason) == ("failed", reason)
    assert point_run.run is working
    assert run_point(sweep, 0, Terms(), console) == 0  # the next start takes the reason away
    assert read_statuses(sweep)[0].state == "completed"


def test_an_interrupt_before_the_workers_leaves_the_run_to_be_started_again(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(request: object, console: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(point_run, "run", run)
    console, _ = a_console()
    assert run_point(sweep, 0, Terms(), console) == 85
    assert read_statuses(sweep)[0].state == "missing"


def test_a_sweep_that_was_moved_runs_where_it_is(sweep: SweepDirectory, tmp_path: Path) -> None:
    moved = SweepDirectory(sweep.path.rename(tmp_path / "elsewhere"))
    seen: list[RunRequest] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_run, "run", lambda request, console: seen.append(request) or 0)
        run_point(moved, 0, Terms(), a_console()[0])
    (request,) = seen
    assert (request.settings.output_dir, request.settings.name) == (str(tmp_path), "elsewhere")


def test_settings_that_this_version_reads_otherwise_are_not_run(sweep: SweepDirectory) -> None:
    """The hash in the name of the folder is that of the settings as they were planned."""
    text = sweep.settings.read_text()
    sweep.settings.write_text(text.replace('"prompts_per_step": 2', '"prompts_per_step": 4'))
    with pytest.raises(ConfigError, match="this version of the code reads its settings as"):
        run_point(sweep, 0, Terms(), a_console()[0])
    assert ran(sweep) == []
