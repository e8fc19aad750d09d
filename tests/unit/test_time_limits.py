"""When the time is over: a run's own minutes, and those that SLURM leaves, asked for seldom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.settings.trainer import TrainerSettings
from grpo_exp.time_limits import SlurmLimit, WallLimit, ask_squeue, build_limits, parse_time_left


class Clock:
    """Tells the seconds that it is set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_minutes_count_from_the_start() -> None:
    """1.5 minutes from second 1000 end at 1090."""
    clock = Clock()
    limit = WallLimit(1.5, clock)
    clock.now = 1089.9
    assert limit() is None
    clock.now = 1090.0
    assert limit() == "trainer.max_wall_minutes=1.5 are over"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5:00", 300), ("59", 59), ("1:00:00", 3600), ("2-03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
        ("UNLIMITED", None), ("0:00", 0),
    ],
)  # fmt: skip
def test_time_left_is_read_as_slurm_writes_it(text: str, seconds: float | None) -> None:
    assert parse_time_left(text) == seconds


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-1:00", "1-x:00:00"])
def test_time_left_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(RunError, match="days-hours:minutes:seconds were expected"):
        parse_time_left(text)


@pytest.mark.parametrize("text", ["INVALID", "NOT_SET", ""])
def test_no_answer_does_not_take_the_known_end_away(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_JOB_END_TIME says 1400, less 5 minutes; squeue says at 1000 that it does not know."""
    a_squeue(tmp_path, monkeypatch, f"echo '{text}'" if text else ":")
    clock = Clock()
    limit = SlurmLimit("17", 5, "1400", pytest.fail, clock=clock)
    assert limit() is None
    clock.now = 1100.0
    assert limit() == "SLURM ends job 17 within 5 minutes"
    told: list[str] = []
    assert SlurmLimit("17", 5, None, told.append, clock=clock)() is None
    assert f"squeue answered {text!r}" in told[0]


def a_squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Put a squeue in front of all others that does one line of shell."""
    squeue = folder / "squeue"
    squeue.write_text(f"#!/bin/sh\n{line}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_slurm_is_asked_at_first_and_every_ten_minutes() -> None:
    """The job has 3600 s at second 1000; at 1600 an administrator has taken 2000 of them away."""
    clock, asked, left = Clock(), [], {1000.0: 3600.0, 1600.0: 1000.0}

    def ask(job: str) -> float | None:
        asked.append((job, clock.now))
        return left[clock.now]

    limit = SlurmLimit("17", 5, None, pytest.fail, ask=ask, clock=clock)
    for now in (1000.0, 1300.0, 1599.0, 1600.0):
        clock.now = now
        assert limit() is None
    assert asked == [("17", 1000.0), ("17", 1600.0)]
    clock.now = 2299.0  # the end is at 2600, less 300; it is asked again, and nobody has moved it
    left[2299.0] = 301.0
    assert limit() is None
    clock.now = 2300.0
    assert limit() == "SLURM ends job 17 within 5 minutes"


def silent(job: str) -> float | None:
    raise RunError(f"the time that SLURM leaves to job {job} is unknown (no squeue)")


def test_known_end_serves_while_slurm_does_not_answer() -> None:
    clock = Clock()
    limit = SlurmLimit("17", 5, "1400", pytest.fail, ask=silent, clock=clock)
    assert limit() is None
    clock.now = 1100.0
    assert limit() == "SLURM ends job 17 within 5 minutes"


def test_unknown_end_is_told_once() -> None:
    told: list[str] = []
    clock = Clock()
    limit = SlurmLimit("17", 5, None, told.append, ask=silent, clock=clock)
    for now in (1000.0, 1700.0):
        clock.now = now
        assert limit() is None
    (text,) = told
    assert "job 17 is unknown (no squeue)" in text
    assert "--signal" in text


def test_job_without_a_limit_goes_on() -> None:
    clock = Clock()
    limit = SlurmLimit("17", 5, "1001", pytest.fail, ask=lambda _: None, clock=clock)
    clock.now = 10**9
    assert limit() is None


@pytest.mark.parametrize(
    ("settings", "environment", "kinds"),
    [
        ({}, {}, []),
        ({"max_wall_minutes": 5}, {}, [WallLimit]),
        ({}, {"SLURM_JOB_ID": "17"}, [SlurmLimit]),
        ({"slurm_margin_minutes": 0}, {"SLURM_JOB_ID": "17"}, []),
    ],
)
def test_limits_are_those_that_are_there(
    settings: dict[str, float], environment: dict[str, str], kinds: list[type]
) -> None:
    trainer = TrainerSettings.model_validate({"max_completion_length": 8, "learning_rate": 1e-4, **settings})
    assert [type(limit) for limit in build_limits(trainer, environment, pytest.fail)] == kinds


def test_squeue_is_asked_for_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_squeue(tmp_path, monkeypatch, '[ "$*" = "--noheader --jobs 17 --format %L" ] && echo 1-00:00:01')
    assert ask_squeue("17") == 86401
    with pytest.raises(RunError, match="job 18 is unknown"):
        ask_squeue("18")
