"""Nothing that a tracker does reaches the training loop: no exception, no wait, one warning."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from grpo_exp.tracking.background import BackgroundTracker
from grpo_exp.tracking.metrics_log import MetricsRecord
from grpo_exp.tracking.tracker import RunInfo, RunStatus

INFO = RunInfo("demo", "abc-s0", {}, Path())


def record(step: int) -> MetricsRecord:
    return {"step": step, "time": 0.0, "metrics": {"train/reward": 1.0}}


class FakeTracker:
    """A backend that can raise or block at one of its calls, and remembers what reached it."""

    name = "Fake"

    def __init__(self, fault: str = "", error: BaseException | None = None) -> None:
        self.fault = fault
        self.error = error
        self.release = threading.Event()
        self.seen: list[str] = []
        self.threads: set[str] = set()

    def _meet(self, call: str) -> None:
        self.threads.add(threading.current_thread().name)
        if call == self.fault:
            if self.error is not None:
                raise self.error
            self.release.wait(20)
        self.seen.append(call)

    def start(self, info: RunInfo) -> dict[str, str]:
        self._meet("start")
        return {"id": info.run_id}

    def log(self, record: MetricsRecord) -> None:
        self._meet(f"log {record['step']}")

    def finish(self, status: RunStatus) -> None:
        self._meet(f"finish {status}")

    def open_command(self) -> str:
        return "true"


def test_everything_reaches_the_backend_in_order_and_in_one_other_thread() -> None:
    tracker, warnings, ids = FakeTracker(), [], []
    background = BackgroundTracker(tracker, warnings.append)
    background.start(INFO, ids.append)
    for step in range(3):
        background.log(record(step))
    background.finish("completed", timeout_seconds=10)
    assert tracker.seen == ["start", "log 0", "log 1", "log 2", "finish completed"]
    assert tracker.threads == {"grpo-exp-tracker"}
    assert ids == [{"id": "abc-s0"}]
    assert warnings == []
    assert background.num_dropped == 0


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(1), KeyError("x")], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(("fault", "num_dropped"), [("start", 5), ("log 2", 3), ("finish failed", 0)])
def test_a_fault_costs_one_warning_and_the_later_records(fault: str, num_dropped: int, error: BaseException) -> None:
    tracker, warnings = FakeTracker(fault, error), []
    background = BackgroundTracker(tracker, warnings.append)
    background.start(INFO)
    for step in range(5):
        background.log(record(step))
    background.finish("failed", timeout_seconds=10)
    assert len(warnings) == 1
    assert "Fake" in warnings[0]
    assert type(error).__name__ in warnings[0]
    assert "metrics.jsonl has every value" in warnings[0]
    assert background.num_dropped == num_dropped


def test_a_run_is_finished_even_after_a_fault() -> None:
    tracker = FakeTracker("log 0", OSError("disk full"))
    background = BackgroundTracker(tracker, lambda _: None)
    background.start(INFO)
    background.log(record(0))
    background.finish("stopped", timeout_seconds=10)
    assert tracker.seen == ["start", "finish stopped"]


@pytest.mark.parametrize("fault", ["start", "log 0"])
def test_a_backend_that_blocks_delays_neither_log_nor_finish(fault: str) -> None:
    tracker, warnings = FakeTracker(fault), []
    background = BackgroundTracker(tracker, warnings.append, max_queued_records=10)
    started = time.perf_counter()
    background.start(INFO)
    for step in range(100):
        background.log(record(step))
    assert time.perf_counter() - started < 1.0
    # Of the 100, 10 wait in the queue and one more may be in the hands of the backend.
    assert background.num_dropped in {89, 90}
    background.finish("completed", timeout_seconds=0.3)
    assert time.perf_counter() - started < 5.0
    assert len(warnings) == 1
    tracker.release.set()


def test_what_comes_after_finish_is_counted_and_finish_can_be_repeated() -> None:
    tracker = FakeTracker()
    background = BackgroundTracker(tracker, lambda _: None)
    background.start(INFO)
    background.finish("completed", timeout_seconds=10)
    background.log(record(7))
    background.finish("failed", timeout_seconds=10)
    assert tracker.seen == ["start", "finish completed"]
    assert background.num_dropped == 1


def test_a_warning_that_cannot_be_shown_does_not_raise() -> None:
    def broken(text: str) -> None:
        raise OSError("terminal gone")

    background = BackgroundTracker(FakeTracker("start"), broken, max_queued_records=1)
    background.start(INFO)
    for step in range(5):
        background.log(record(step))
    background.finish("completed", timeout_seconds=0.1)
