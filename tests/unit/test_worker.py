"""How a worker ends: what its result says, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_exp import worker
from grpo_exp.checkpoints.continuation import store_of
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json
from grpo_exp.stop_watch import StopRequestedError
from grpo_exp.tracking.metrics_log import MetricsLog
from unit.resume.folder import add
from unit.run_folder import a_result, settings_of

Train = Callable[[RunDirectory, Any, Any], dict[str, Any]]


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    write_json(directory.config_json, settings_of(tmp_path).model_dump(mode="json"))
    return directory


@pytest.fixture
def train_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Train], None]:
    """Put something in the place of training, which would load torch."""
    monkeypatch.delenv(worker.OWNER_VARIABLE, raising=False)
    monkeypatch.delenv("RANK", raising=False)
    return lambda train: monkeypatch.setattr(worker, "_train", train)


def training_result() -> dict[str, Any]:
    return {key: value for key, value in a_result().items() if key != "wall_seconds"}


def result_of(directory: RunDirectory) -> dict[str, Any]:
    result = directory.read_result()
    assert result is not None
    return result


def commits_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, rank: int, heard: Any = None) -> list[Any]:
    """Ask for the commits of a model of the hub as one of two processes; return what this one told the others."""
    told: list[Any] = []

    def broadcast(message: Any) -> Any:
        told.append(message)
        return message if rank == 0 else heard

    def gone(model: Any) -> str:
        raise ConfigError("model.path=org/small: cannot be had from the hub")

    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr(worker, "broadcast_from_main", broadcast)
    monkeypatch.setattr(worker, "model_commit", gone)
    settings = settings_of(tmp_path, "model=hub", "model.path=org/small")
    with pytest.raises(ConfigError, match="org/small: cannot be had from the hub"):
        worker._at_commits(RunDirectory(tmp_path), settings, worker.SilentObserver(None))  # type: ignore[arg-type]
    return told


def test_model_that_cannot_be_had_ends_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for what the main one found: without a word of it they would wait until NCCL gives up."""
    (told,) = commits_told(monkeypatch, tmp_path, rank=0)
    commits_told(monkeypatch, tmp_path, rank=1, heard=told)


def test_failure_says_how_many_steps_were_done(directory: RunDirectory, train_as: Callable[[Train], None]) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        for step in (1, 2, 3):
            observer.on_metrics(step, {"train/loss": 0.5})
        raise ValueError("boom")

    train_as(train)
    with pytest.raises(ValueError, match="boom"):
        worker.run_worker(directory)
    result = result_of(directory)
    assert (result["status"], result["reason"], result["steps"]) == ("failed", "ValueError: boom", 3)


def test_stop_before_the_first_step_is_a_stop(directory: RunDirectory, train_as: Callable[[Train], None]) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        directory.stop_file.touch()
        observer.on_phase("priming", 1, 400)
        raise AssertionError("it went on")

    train_as(train)
    with pytest.raises(StopRequestedError):
        worker.run_worker(directory)
    result = result_of(directory)
    assert (result["status"], result["reason"], result["steps"]) == ("stopped", "stopped on request", 0)


def test_picture_that_fails_costs_neither_the_result_nor_the_exit_code(
    directory: RunDirectory, train_as: Callable[[Train], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        observer.on_metrics(1, {"train/loss": 0.5})
        return training_result()

    def fail(*_: object, **__: object) -> None:
        raise OSError("no font")

    train_as(train)
    monkeypatch.setattr("grpo_exp.reporting.plots.plot_curves", fail)
    worker.run_worker(directory)
    assert result_of(directory)["status"] == "completed"
    (event,) = read_events(directory)
    assert event["kind"] == "warning"
    assert "curves were not drawn (OSError: no font)" in event["text"]


def test_worker_that_was_replaced_stops_and_writes_nothing(
    directory: RunDirectory, train_as: Callable[[Train], None]
) -> None:
    """Its front end was killed, and the run was started again before the worker noticed."""

    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        observer.on_metrics(1, {"train/loss": 0.5})
        begin_attempt(directory)
        write_json(directory.status, {"phase": "priming", "done": 0, "total": 0})
        assert observer.wants_stop()
        observer.on_phase("held-out accuracy after training")
        raise AssertionError("it went on")

    train_as(train)
    with pytest.raises(StopRequestedError, match="another process has taken over the run"):
        worker.run_worker(directory)
    assert directory.read_result() is None
    assert directory.read_status() == {"phase": "priming", "done": 0, "total": 0}


def test_worker_that_was_replaced_in_its_last_moment_writes_nothing(
    directory: RunDirectory, train_as: Callable[[Train], None]
) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        observer.on_metrics(1, {"train/loss": 0.5})
        begin_attempt(directory)
        return training_result()

    train_as(train)
    worker.run_worker(directory)
    assert directory.read_result() is None
    assert not directory.curves.exists()
    assert (directory.log_root / "attempt-1" / "metrics.jsonl").exists()


def test_worker_that_comes_too_late_does_not_begin(
    directory: RunDirectory, train_as: Callable[[Train], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it loaded, its front end (process 2 ** 22 + 1 is above the kernel's largest number) gave way to another."""
    train_as(lambda *_: pytest.fail("it began"))
    monkeypatch.setenv(worker.OWNER_VARIABLE, str(2**22 + 1))
    lock = Lock(directory.lock)
    lock.acquire()
    with pytest.raises(RunError, match="another process has taken over the run"):
        worker.run_worker(directory)
    lock.release()
    assert not directory.metrics.exists()


@pytest.mark.parametrize(
    ("steps", "stopped", "health_stop", "saved", "expected"),
    [
        (5, False, False, 5, ("completed", 0, False, "all steps done")),
        (2, True, False, 2, ("stopped", 85, True, "asked")),
        (2, True, False, None, ("stopped", 1, False, "asked")),  # checkpoints are off: two steps are lost
        (0, True, False, None, ("stopped", 85, True, "asked")),  # nothing is lost
        (5, True, False, 5, ("stopped", 85, True, "asked, in the held-out evaluation after the last step")),
        (2, True, True, 1, ("stopped", 3, False, "asked")),
        (5, True, True, 5, ("stopped", 3, False, "asked")),  # a rule at the last step ends the evaluation, too
    ],
)
def test_result_says_where_a_stop_came_and_whether_the_run_goes_on(
    steps: int, stopped: bool, health_stop: bool, saved: int | None, expected: tuple[str, int, bool, str],
    directory: RunDirectory,
) -> None:  # fmt: skip
    if saved is not None:
        add(store_of(directory), saved)
    outcome: Any = SimpleNamespace(steps=steps, stopped=stopped, evaluation={"before": {}})
    observer: Any = SimpleNamespace(stop_reason="asked", health_stop=health_stop)
    result = worker._to_result(outcome, observer, directory, max_steps=5)
    assert (result["status"], result["exit_code"], result["resumable"], result["reason"]) == expected
    assert (result["steps"], result["eval"]) == (steps, {"before": {}})


def test_failure_with_a_checkpoint_can_be_gone_on_with(
    directory: RunDirectory, train_as: Callable[[Train], None]
) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        raise ValueError("boom")

    train_as(train)
    for resumable in (False, True):
        with pytest.raises(ValueError, match="boom"):
            worker.run_worker(directory)
        assert (result_of(directory)["exit_code"], result_of(directory)["resumable"]) == (1, resumable)
        if not resumable:
            add(store_of(directory), 2)


def test_curves_before_a_resume_are_looked_at_again(
    directory: RunDirectory, train_as: Callable[[Train], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of 3 steps without variance: two lie before the resume, so that the rule speaks at the third."""
    settings = settings_of(
        directory.path.parent, "health.rules.no_signal.window=3", "trainer.checkpoint.best_metric=train/reward"
    )
    write_json(directory.config_json, settings.model_dump(mode="json"))
    dead = {"train/loss": 0.5, "train/frac_reward_zero_std": 1.0}
    log = MetricsLog(directory.metrics)
    for step, reward in ((1, 0.25), (2, 0.5)):
        log.append(step, dead | {"train/reward": reward}, 1.0)
    log.close()
    seen: dict[str, Any] = {}

    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        seen["step"] = observer.last_step
        observer.on_metrics(3, dead | {"train/reward": 1.5})
        seen["facts"] = observer.checkpoint_facts()
        return training_result()

    train_as(train)
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    worker.run_worker(directory)
    assert seen["step"] == 2
    warned = [(event["rule"], event["step"]) for event in read_events(directory) if event["kind"] == "warning"]
    assert warned == [("no_signal", 3)]
    # The mean of 0.25, 0.5 and 1.5; three lines.
    assert seen["facts"]["best"] == {"metric": "train/reward", "value": 0.75}
    assert seen["facts"]["metrics"] == {"bytes": directory.metrics.stat().st_size, "lines": 3}


def test_first_steps_are_explained_once_in_the_life_of_a_run(
    directory: RunDirectory, train_as: Callable[[Train], None]
) -> None:
    """Two attempts with the same first steps: the second one repeats nothing, and adds what is new."""
    surprising = {"train/loss": 0.001, "train/grad_norm": 0.5}

    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        for step in (1, 2, 3, 4):
            dead = {"train/frac_reward_zero_std": 1.0} if directory.attempt == 2 and step == 2 else {}
            observer.on_metrics(step, surprising | dead)
        return training_result()

    train_as(train)
    worker.run_worker(directory)
    begin_attempt(directory)
    worker.run_worker(directory)
    found = [(e["attempt"], e["step"], e["topic"]) for e in read_events(directory) if e["kind"] == "explanation"]
    assert found == [(1, 1, "loss_near_zero"), (2, 2, "dead_groups")]


def test_note_of_the_trainer_is_written_down(directory: RunDirectory, train_as: Callable[[Train], None]) -> None:
    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        observer.on_note("the model has dropout above 0")
        return training_result()

    train_as(train)
    worker.run_worker(directory)
    (event,) = read_events(directory)
    assert (event["kind"], event["text"]) == ("note", "the model has dropout above 0")
