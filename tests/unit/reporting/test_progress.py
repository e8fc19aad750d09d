"""The progress view shows what exists, aligned, and follows a file that another process writes."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from grpo_exp.reporting.columns import format_duration
from grpo_exp.reporting.progress import STEPS_BETWEEN_TITLES, ProgressView, format_time
from grpo_exp.tracking.metrics_log import MetricsRecord


def record(step: int, **extra: float) -> MetricsRecord:
    metrics = {
        "train/reward": 0.5,
        "train/rewards/correctness/mean": 0.4,
        "train/rewards/format/mean": 1.0,
        "train/completion_length/mean": 12.34,
        "train/clip_ratio/low_mean": 0.01,
        "train/clip_ratio/high_mean": 0.02,
        "train/entropy": 0.75,
        "time/step": 2.0,
    }
    return {"step": step, "time": 100.0 + 2.0 * step, "metrics": metrics | extra}


def plain_view(total_steps: int) -> tuple[ProgressView, io.StringIO]:
    out = io.StringIO()
    return ProgressView(total_steps, ["correctness", "format"], Console(file=out, width=140)), out


def lines_of(out: io.StringIO) -> list[str]:
    """Return what was printed without the time in front of each line, which is 19 characters long, and two blanks."""
    lines = out.getvalue().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  |time {17}", line) for line in lines)
    return [line[21:] for line in lines]


def test_reward_and_length_are_those_before_groups_are_chosen() -> None:
    """Kept groups have rewards that differ, so their mean says nothing about the policy."""
    view, out = plain_view(10)
    unchosen = {
        "train/dynamic_sampling/reward": 0.91,
        "train/dynamic_sampling/rewards/correctness/mean": 0.81,
        "train/dynamic_sampling/completion_length/mean": 9.5,
    }
    view.update(record(1, **unchosen))
    header, line = lines_of(out)
    shown = dict(zip(header.split(), line.split(), strict=True))
    # The form has no value before choosing in this record, so its own one stands.
    assert (shown["reward"], shown["correctness"], shown["format"], shown["length"]) == (
        "0.910",
        "0.810",
        "1.000",
        "9.5",
    )


def test_a_plain_line_shows_every_column_under_its_title() -> None:
    view, out = plain_view(10)
    view.update(record(1))
    view.update(record(2))
    header, first, second = lines_of(out)
    assert header.split() == [
        "step",
        "reward",
        "correctness",
        "format",
        "length",
        "clipped",
        "entropy",
        "s/step",
        "ETA",
    ]
    # Clipped is low plus high: 1 % + 2 %. Nine steps of 2 s are left after the first, eight after the second.
    assert first.split() == ["1/10", "0.500", "0.400", "1.000", "12.3", "3.00%", "0.750", "2.00", "0:18"]
    assert second.split()[-1] == "0:16"
    assert len(header) == len(first) == len(second)


def test_kl_has_a_column_only_where_there_is_a_kl() -> None:
    view, out = plain_view(10)
    view.update(record(1, **{"train/kl": 0.0123}))
    header, line = lines_of(out)
    assert line.split()[header.split().index("KL")] == "0.0123"


def test_a_log_has_one_line_for_each_step_and_the_titles_now_and_then() -> None:
    """120 steps: titles above steps 1, 51 and 101."""
    view, out = plain_view(120)
    for step in range(1, 121):
        view.update(record(step))
    view.close()
    first_words = [line.split()[0] for line in lines_of(out)]
    expected = [f"{step}/120" for step in range(1, 121)]
    for place in (2 * STEPS_BETWEEN_TITLES, STEPS_BETWEEN_TITLES, 0):
        expected.insert(place, "step")
    assert first_words == expected


def test_a_line_of_a_log_begins_with_the_time_of_what_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 1 was measured 90,000 s after the epoch: on January 2nd, 1970 at 1:00 in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    view, out = plain_view(10)
    moment = record(1)
    moment["time"] = 90_000.0
    view.update(moment)
    view.update({"step": 1, "time": 90_061.0, "metrics": {"eval/accuracy": 0.5}})
    monkeypatch.undo()
    time.tzset()
    titles, step, evaluation = out.getvalue().splitlines()
    assert titles.startswith("time" + " " * 17)
    assert step.startswith("1970-01-02 01:00:00  ")
    assert evaluation == "1970-01-02 01:01:01  step 1: held-out accuracy 0.500"
    assert len(format_time(0.0)) == 19


def test_records_that_come_together_are_drawn_once_on_a_terminal() -> None:
    """1000 records of a run that is watched from its middle are one picture, not a thousand."""
    out = io.StringIO()
    view = ProgressView(1000, [], Console(file=out, width=80, force_terminal=True))
    view.update(*(record(step) for step in range(1, 1001)))
    assert out.getvalue().count("1000/1000") == 1
    assert "500/1000" not in out.getvalue()
    view.close()


def test_one_slow_step_does_not_move_the_time_left() -> None:
    view, out = plain_view(30)
    for step in range(1, 21):
        moment = record(step)
        moment["time"] += 1000.0 if step > 10 else 0.0  # an evaluation after step 10
        view.update(moment)
    assert out.getvalue().split()[-1] == "0:20"


def test_evaluations_and_phases_and_messages_are_lines() -> None:
    view, out = plain_view(10)
    view.phase("preparing the model", 1, 2)
    view.phase("preparing the model", 2, 2)
    view.update({"step": 0, "time": 0.0, "metrics": {"eval/accuracy": 0.25, "eval/greedy_accuracy": 0.5}})
    view.message("[not markup]")
    view.close()
    assert lines_of(out) == [
        "preparing the model 1/2",
        "preparing the model 2/2",
        "step 0: held-out accuracy 0.250, greedy 0.500",
        "[not markup]",
    ]


def test_a_counted_phase_is_a_line_for_each_quarter() -> None:
    """400 parts: the first one, then 100, 200, 300 and 400."""
    view, out = plain_view(10)
    for done in range(1, 401):
        view.phase("priming", done, 400)
    assert lines_of(out) == [f"priming {done}/400" for done in (1, 100, 200, 300, 400)]


def test_a_counted_phase_is_a_bar_on_a_terminal() -> None:
    """Half of the parts are done: the bar of 60 cells has 30 full ones."""
    out = io.StringIO()
    view = ProgressView(10, ["correctness"], Console(file=out, width=80, force_terminal=True, color_system=None))
    view.phase("priming", 200, 400)
    drawn = out.getvalue().rpartition("priming 200/400")[2]
    view.close()
    assert drawn.count("\u2501") == 30


def test_a_terminal_gets_a_table_that_is_updated_in_place() -> None:
    out = io.StringIO()
    view = ProgressView(10, ["correctness"], Console(file=out, width=80, force_terminal=True))
    for step in (1, 2, 10):
        view.update(record(step))
    view.message("a message")
    view.close()
    text = out.getvalue()
    assert "\x1b[2K" in text  # lines are erased and drawn again
    assert "10/10" in text
    assert "ETA 0:00" in text
    assert "a message" in text


def test_durations_are_written_as_clocks_do() -> None:
    assert [format_duration(seconds) for seconds in (0, 59.6, 61, 3600)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
    ]
