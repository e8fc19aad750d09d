"""Between steps: metrics are handed on with their times, and all processes stop at the same step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from grpo_exp.backends.trl.callbacks import CheckpointCallback, MetricsCallback, StopCallback
from grpo_exp.backends.trl.trainer import StepClock


@pytest.fixture
def arguments(tmp_path: Path) -> TrainingArguments:
    return TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])


def state(step: int, of: int = 10) -> TrainerState:
    return TrainerState(global_step=step, max_steps=of, is_world_process_zero=True)


def test_clock_splits_a_step_into_its_phases() -> None:
    """0.05 s and 0.02 s of generation, 0.03 s of reward, and the rest is training."""
    clock = StepClock()
    clock.start_step()
    for name, seconds in (("generate", 0.05), ("reward", 0.03), ("generate", 0.02)):
        with clock.phase(name):
            time.sleep(seconds)
    time.sleep(0.04)
    times = clock.read()
    assert set(times) == {"time/generate", "time/reward", "time/train", "time/step"}
    assert times["time/generate"] >= 0.07
    assert times["time/reward"] >= 0.03
    assert times["time/train"] >= 0.04
    parts = times["time/generate"] + times["time/reward"] + times["time/train"]
    assert parts == pytest.approx(times["time/step"], rel=1e-6)


def test_new_step_starts_from_nothing_and_a_phase_that_did_not_happen_has_no_time() -> None:
    clock = StepClock()
    with clock.phase("generate"):
        pass
    clock.start_step()
    assert set(clock.read()) == {"time/train", "time/step"}


def test_phase_that_fails_is_measured_all_the_same() -> None:
    clock = StepClock()
    clock.start_step()

    def fail() -> None:
        with clock.phase("reward"):
            time.sleep(0.01)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert clock.read()["time/reward"] >= 0.01


def test_metrics_of_a_step_are_handed_on_with_its_times(arguments: TrainingArguments) -> None:
    told: list[tuple[int, dict[str, float]]] = []
    callback = MetricsCallback(StepClock(), lambda step, metrics: told.append((step, metrics)))
    control = TrainerControl()
    callback.on_step_begin(arguments, state(3), control)
    callback.on_step_end(arguments, state(3), control)
    callback.on_log(arguments, state(3), control, logs={"loss": 0.25, "reward": 1.0})
    ((step, metrics),) = told
    assert step == 3
    assert set(metrics) == {"train/loss", "train/reward", "time/train", "time/step"}


def test_summary_after_the_last_step_is_no_step(arguments: TrainingArguments) -> None:
    told: list[Any] = []
    callback = MetricsCallback(StepClock(), lambda *seen: told.append(seen))
    callback.on_log(arguments, state(10), TrainerControl(), logs={"train_runtime": 5.0, "train_loss": 0.1})
    callback.on_log(arguments, state(10), TrainerControl(), logs=None)
    assert told == []


def test_other_processes_tell_nothing(arguments: TrainingArguments) -> None:
    told: list[Any] = []
    callback = MetricsCallback(StepClock(), lambda *seen: told.append(seen))
    other = TrainerState(global_step=1, max_steps=10, is_world_process_zero=False)
    callback.on_log(arguments, other, TrainerControl(), logs={"loss": 0.1})
    assert told == []


@pytest.mark.parametrize(
    ("mine", "others", "stops"), [(False, False, False), (True, False, True), (False, True, True), (True, True, True)]
)
def test_one_process_that_wants_to_stop_stops_all(
    mine: bool, others: bool, stops: bool, arguments: TrainingArguments
) -> None:
    asked: list[bool] = []

    def any_process(value: bool) -> bool:
        asked.append(value)
        return value or others

    callback, control = StopCallback(lambda: mine, any_process), TrainerControl()
    callback.on_log(arguments, state(3), control, logs={"loss": 0.0})
    assert asked == [mine]  # every process takes part in the agreement, whatever it wants itself
    assert control.should_training_stop is stops
    assert callback.stopped is stops


def test_stop_at_the_last_step_is_a_completed_run(arguments: TrainingArguments) -> None:
    callback = StopCallback(lambda: True, lambda value: value)
    callback.on_log(arguments, state(10, of=10), TrainerControl(), logs={"loss": 0.0})
    assert not callback.stopped


# ------------------------------------------------------------------------------------------ checkpoints


def saves_at(
    arguments: TrainingArguments, *, every_steps: int | None, asked: int = 0, broken: int = 0, stops_at: int = 0
) -> list[int]:
    """Return the steps of 7 behind which a checkpoint is saved."""
    found, now = [], 0
    callback = CheckpointCallback(
        every_steps=every_steps,
        is_asked=lambda: now == asked,
        is_broken=lambda: now == broken,
        any_process=lambda value: value,
    )
    for now in range(1, 8):
        control = TrainerControl(should_training_stop=now == stops_at)
        callback.on_log(arguments, state(now, of=7), control, logs={"loss": 0.0})
        callback.on_log(arguments, state(now, of=7), control, logs={"train_runtime": 1.0})  # no step
        if control.should_save:
            found.append(now)
    return found


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"every_steps": 3}, [3, 6, 7]),  # and the last one
        ({"every_steps": None}, [7]),
        ({"every_steps": None, "stops_at": 2}, [2, 7]),
        ({"every_steps": None, "asked": 5}, [5, 7]),
        ({"every_steps": 3, "broken": 6}, [3, 7]),
        ({"every_steps": 3, "broken": 7}, [3, 6]),
        ({"every_steps": 3, "broken": 6, "asked": 6}, [3, 6, 7]),  # asked for all the same
    ],
)
def test_checkpoint_is_saved_when_it_is_due_or_asked_for(
    wishes: dict[str, Any], expected: list[int], arguments: TrainingArguments
) -> None:
    assert saves_at(arguments, **wishes) == expected


def test_one_process_that_asks_for_a_checkpoint_has_all_of_them_save(arguments: TrainingArguments) -> None:
    """This one asks for nothing and finds nothing broken; another one does, in the order of the questions."""
    for others, saves in (([True], True), ([False, False], True), ([False, True], False)):
        answers = iter(others)
        callback = CheckpointCallback(
            every_steps=3, is_asked=lambda: False, is_broken=lambda: False,
            any_process=lambda value, answers=answers: value or next(answers),
        )  # fmt: skip
        control = TrainerControl()
        callback.on_log(arguments, state(3), control, logs={"loss": 0.0})
        assert control.should_save is saves
