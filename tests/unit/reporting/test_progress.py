"""The progress view shows what exists, aligned, and follows a file that another process writes."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.reporting.columns import format_duration
from grpo_exp.reporting.progress import ProgressView, feed, follow
from grpo_exp.tracking.metrics_log import MetricsLog, MetricsRecord


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


def plain_view(total_steps: int, **options: Any) -> tuple[ProgressView, io.StringIO]:
    out = io.StringIO()
    return ProgressView(total_steps, ["correctness", "format"], Console(file=out, width=140), **options), out


def test_reward_and_length_are_those_before_groups_are_chosen() -> None:
    """Kept groups have rewards that differ, so their mean says nothing about the policy."""
    view, out = plain_view(10, every_steps=1)
    unchosen = {
        "train/dynamic_sampling/reward": 0.91,
        "train/dynamic_sampling/rewards/correctness/mean": 0.81,
        "train/dynamic_sampling/completion_length/mean": 9.5,
    }
    view.update(record(1, **unchosen))
    header, line = out.getvalue().splitlines()
    shown = dict(zip(header.split(), line.split(), strict=True))
    # The form has no value before choosing in this record, so its own one stands.
    assert (shown["reward"], shown["correctness"], shown["format"], shown["length"]) == (
        "0.910",
        "0.810",
        "1.000",
        "9.5",
    )


def test_a_plain_line_shows_every_column_under_its_title() -> None:
    view, out = plain_view(10, every_steps=1)
    view.update(record(1))
    view.update(record(2))
    header, first, second = out.getvalue().splitlines()
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
    view, out = plain_view(10, every_steps=1)
    view.update(record(1, **{"train/kl": 0.0123}))
    header, line = out.getvalue().splitlines()
    assert line.split()[header.split().index("KL")] == "0.0123"


def test_a_long_run_writes_about_twenty_lines_and_always_the_first_and_last() -> None:
    view, out = plain_view(1000)
    for step in range(1, 1001):
        moment = record(step)
        moment["time"] = step * 0.1
        view.update(moment)
    view.close()
    lines = out.getvalue().splitlines()[1:]
    steps = [int(line.split("/")[0]) for line in lines]
    assert steps == [1, *range(51, 1000, 50), 1000]


def test_slow_steps_are_all_shown() -> None:
    view, out = plain_view(1000)
    for step in range(1, 4):
        moment = record(step)
        moment["time"] = step * 90.0
        view.update(moment)
    assert len(out.getvalue().splitlines()) == 4


def test_close_writes_the_step_that_was_reached() -> None:
    view, out = plain_view(100, every_steps=50)
    for step in range(1, 8):
        view.update(record(step))
    view.close()
    view.close()
    assert [line.split("/")[0].strip() for line in out.getvalue().splitlines()[1:]] == ["1", "7"]


def test_one_slow_step_does_not_move_the_time_left() -> None:
    view, out = plain_view(30, every_steps=1)
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
    assert out.getvalue().splitlines() == [
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
    assert out.getvalue().splitlines() == [f"priming {done}/400" for done in (1, 100, 200, 300, 400)]


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


def test_follow_waits_for_the_file_and_takes_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    view, out = plain_view(10, every_steps=1)
    stop = threading.Event()
    thread = threading.Thread(target=follow, args=(path, view, stop.is_set))
    thread.start()
    with MetricsLog(path) as log:
        log.append(1, record(1)["metrics"], 1.0)
        log.append(2, record(2)["metrics"], 2.0)
    with path.open("a") as file:
        file.write('{"step": 3, "time"')
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
    assert [line.split("/")[0].strip() for line in out.getvalue().splitlines()[1:]] == ["1", "2"]


def test_feed_goes_on_where_it_was_also_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    view, out = plain_view(10, every_steps=1)
    with MetricsLog(path) as log:
        log.append(1, record(1)["metrics"], 1.0)
        log.append(2, record(2)["metrics"], 2.0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    offset = feed(path, view, 0)
    assert len(out.getvalue().splitlines()) == 2
    path.write_bytes(whole)
    assert feed(path, view, offset) == len(whole)
    assert len(out.getvalue().splitlines()) == 3


def test_a_file_that_was_cut_back_is_not_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    view, out = plain_view(10, every_steps=1)
    with MetricsLog(path) as log:
        log.append(1, record(1)["metrics"], 1.0)
        size = path.stat().st_size
        log.append(2, record(2)["metrics"], 2.0)
    offset = feed(path, view, 0)
    path.write_bytes(path.read_bytes()[:size])
    assert feed(path, view, offset) == size
    assert len(out.getvalue().splitlines()) == 3


def test_durations_are_written_as_clocks_do() -> None:
    assert [format_duration(seconds) for seconds in (0, 59.6, 61, 3600)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
    ]
