"""What happens between steps: write metrics, look at them, stop when asked to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from grpo_exp.backends.trl.metric_names import to_metrics
from grpo_exp.backends.trl.trainer import StepClock


class MetricsCallback(TrainerCallback):
    """Hand the metrics of each step on, on the main process.

    Args:
        clock: Times of the step.
        on_metrics: Called with the step (from 1) and its metrics.
    """

    def __init__(self, clock: StepClock, on_metrics: Callable[[int, dict[str, float]], None]) -> None:
        self._clock = clock
        self._on_metrics = on_metrics
        self._times: dict[str, float] = {}

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Start the clock: data loading, generation and reward happen after this."""
        self._clock.start_step()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Stop the clock before anything is logged or evaluated."""
        self._times = self._clock.read()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Translate and hand on; the summary after the last step is no step."""
        if state.is_world_process_zero and logs is not None and "loss" in logs:
            self._on_metrics(state.global_step, {**to_metrics(logs), **self._times})


class StopCallback(TrainerCallback):
    """End training after a step when any process wants it, at the same step on all of them.

    Asked when the step has been logged, so that what its metrics say counts; it must be added behind the callback that
    looks at them.

    Args:
        wants_stop: Asked on every process after every step.
        any_process: Whether a boolean is true on any process; called on all of them together.
    """

    def __init__(self, wants_stop: Callable[[], bool], any_process: Callable[[bool], bool]) -> None:
        self._wants_stop = wants_stop
        self._any_process = any_process
        self.stopped = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Agree, and stop; the summary after the last step is no step."""
        if logs is None or "loss" not in logs:
            return
        if self._any_process(self._wants_stop()):
            self.stopped = state.global_step < state.max_steps
            control.should_training_stop = True


class CheckpointCallback(TrainerCallback):
    """Have a checkpoint saved behind some steps, at the same ones on all processes.

    Behind every so many steps, the last one, the one at which training stops, and those at which somebody asks for it;
    never, unless it is asked for, behind a step that broke the run.

    It must be added behind the callback that stops.

    Args:
        every_steps: Steps between two; None is only at a stop and at the end.
        is_asked: Asked on every process after every step.
        is_broken: Whether the step has broken the run; asked on every process before a save.
        any_process: Whether a boolean is true on any process; called on all of them together.
    """

    def __init__(
        self,
        *,
        every_steps: int | None,
        is_asked: Callable[[], bool],
        is_broken: Callable[[], bool],
        any_process: Callable[[bool], bool],
    ) -> None:
        self._every_steps = every_steps
        self._is_asked = is_asked
        self._is_broken = is_broken
        self._any_process = any_process

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Decide when a step has been logged: transformers saves right after that."""
        if logs is None or "loss" not in logs:
            return
        asked = self._any_process(self._is_asked())
        due = control.should_training_stop or state.global_step >= state.max_steps
        due = due or (self._every_steps is not None and state.global_step % self._every_steps == 0)
        if asked or (due and not self._any_process(self._is_broken())):
            control.should_save = True


class FirstCallback(TrainerCallback):
    """Do something once, when the model has been set up for training and no step has been made.

    Args:
        work: Called on every process.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Do it, unless the run goes on behind some steps."""
        if state.global_step == 0:
            self._work()
