"""What findings lead to: events, checkpoints, the end of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_exp import worker
from grpo_exp.observers import MainObserver, SilentObserver
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.stop_watch import StopWatch
from unit.run_folder import settings_of

CUT = "train/completion_length/truncated_fraction"
CUT_OFF = {"train/loss": 0.1, CUT: 0.9}
Start = Callable[..., RunDirectory]
Observe = Callable[[RunDirectory], MainObserver]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Make the folder of a run whose rule on truncation speaks after two steps."""

    def start(*words: str) -> RunDirectory:
        directory = find_or_create(tmp_path, "abc-s0", resume=True)
        begin_attempt(directory)
        settings = settings_of(tmp_path, "health.rules.truncation.window=2", *words)
        write_json(directory.config_json, settings.model_dump(mode="json"))
        return directory

    return start


@pytest.fixture
def observer_of() -> Iterator[Observe]:
    """Make the main process's observer of a run; its files are closed in the end."""
    made: list[MainObserver] = []

    def observer_of(directory: RunDirectory) -> MainObserver:
        settings = RunSettings.model_validate(directory.read_config())
        made.append(MainObserver(directory, StopWatch(directory, owner=0), settings))
        return made[-1]

    yield observer_of
    for observer in made:
        observer.close("stopped")


def steps(observer: SilentObserver, *numbers: int) -> None:
    for number in numbers:
        observer.on_metrics(number, dict(CUT_OFF))


def test_event_has_what_since_why_and_what_to_try(start: Start, observer_of: Observe) -> None:
    directory = start()
    steps(observer_of(directory), 1, 2, 3)
    (event,) = read_events(directory)
    assert (event["kind"], event["rule"], event["action"]) == ("warning", "truncation", "alert")
    assert (event["step"], event["since"]) == (2, 1)
    assert event["text"].startswith("90% or more of the completions hit the limit")
    assert event["why"].startswith("their answers are cut off")
    assert event["advice"].startswith("raise trainer.max_completion_length")


@pytest.mark.parametrize(("action", "wanted"), [("checkpoint", True), ("alert", False), ("log", False)])
def test_checkpoint_is_asked_for_once(action: str, wanted: bool, start: Start, observer_of: Observe) -> None:
    observer = observer_of(start(f"health.rules.truncation.action={action}"))
    steps(observer, 1)
    assert not observer.takes_checkpoint()
    steps(observer, 2)
    assert observer.takes_checkpoint() is wanted
    steps(observer, 3)
    assert not observer.takes_checkpoint()
    assert not observer.wants_stop()


def test_finding_of_severity_info_is_only_logged(start: Start, observer_of: Observe) -> None:
    """The form is at its best, which an action of `stop` does not make worse."""
    directory = start("health.rules.constant_component.action=stop", "health.rules.constant_component.window=1")
    observer = observer_of(directory)
    observer.on_metrics(1, {"train/loss": 0.1, "train/rewards/format/mean": 1.0, "train/rewards/format/std": 0.0})
    (event,) = read_events(directory)
    assert (event["kind"], event["subject"]) == ("info", "format")
    assert not observer.wants_stop()


def training(metrics: list[dict[str, float]]) -> Callable[..., dict[str, Any]]:
    """Return what stands in for training: a step for each of the metrics, until it is asked to stop."""

    def train(directory: RunDirectory, settings: Any, observer: Any) -> dict[str, Any]:
        for step, values in enumerate(metrics, start=1):
            observer.on_metrics(step, values)
            if observer.wants_stop():
                outcome: Any = SimpleNamespace(steps=step, stopped=step < len(metrics), evaluation={})
                return worker._to_result(outcome, observer, directory, max_steps=len(metrics))
        raise AssertionError("it went on")

    return train


@pytest.mark.parametrize(
    ("words", "metrics", "steps_done", "reason"),
    [
        ((), [{"train/loss": 0.1}, {"train/loss": math.nan}, {"train/loss": 0.1}], 2,
         "health.rules.not_finite: train/loss is not finite"),
        (("health.rules.truncation.action=stop",), [dict(CUT_OFF)] * 4, 2,
         "health.rules.truncation: 90% or more of the completions hit the limit of 20 tokens"),
    ],
)  # fmt: skip
def test_rule_that_stops_ends_the_run_with_code_3_and_its_reason(
    words: tuple[str, ...], metrics: list[dict[str, float]], steps_done: int, reason: str, start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    directory = start(*words)
    monkeypatch.setattr(worker, "_train", training(metrics))
    worker.run_worker(directory)
    result = json.loads(directory.result.read_text())
    assert (result["status"], result["exit_code"], result["resumable"]) == ("stopped", 3, False)
    assert result["steps"] == steps_done
    assert result["reason"].startswith(reason)


def test_run_that_goes_on_is_not_told_again_what_stands_in_its_events(start: Start, observer_of: Observe) -> None:
    """Two steps and a finding; the process ends; the next one goes on behind step 2."""
    directory = start()
    first = observer_of(directory)
    steps(first, 1, 2)
    first.close("stopped")
    second = observer_of(directory)
    assert second.last_step == 2
    steps(second, 3, 4)
    assert [event["step"] for event in read_events(directory)] == [2]


def test_run_that_goes_on_remembers_its_history(start: Start, observer_of: Observe) -> None:
    """One step before the end of the process and one after it fill the window of two."""
    directory = start()
    steps(observer_of(directory), 1)
    second = observer_of(directory)
    steps(second, 2)
    (event,) = read_events(directory)
    assert (event["step"], event["since"]) == (2, 1)


def test_run_that_starts_from_the_beginning_tells_anew(start: Start, observer_of: Observe) -> None:
    directory = start()
    steps(observer_of(directory), 1, 2)
    start()
    steps(observer_of(directory), 1, 2)
    assert [(event["attempt"], event["step"]) for event in read_events(directory)] == [(1, 2), (2, 2)]
