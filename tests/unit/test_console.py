"""Where a run is shown as a table that changes in place, and where as lines for a log."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator

import pytest
from rich.console import Console

from grpo_exp.console import build_console, shows_live_table
from grpo_exp.errors import ConfigError


@pytest.fixture
def terminal() -> Iterator[Console]:
    """A console on a pseudo-terminal."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        yield Console(file=stream, _environ={"TERM": "xterm"})
    os.close(leader)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"SLURM_JOB_ID": "17"}, False),
        ({"CI": "true"}, False),
        ({"CI": ""}, True),
        ({"GRPO_EXP_PROGRESS": "plain"}, False),
        ({"GRPO_EXP_PROGRESS": "live", "SLURM_JOB_ID": "17"}, True),
        ({"GRPO_EXP_PROGRESS": ""}, True),
    ],
)
def test_batch_jobs_and_dumb_terminals_get_lines_unless_somebody_says_otherwise(
    environment: dict[str, str], expected: bool, terminal: Console
) -> None:
    assert shows_live_table(terminal, environment) is expected


def test_file_gets_lines() -> None:
    assert not shows_live_table(Console(file=io.StringIO()), {})


def test_table_can_be_forced_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_EXP_PROGRESS", "live")
    console = build_console(io.StringIO())
    assert console.is_terminal
    assert shows_live_table(console)


def test_other_words_are_refused_with_the_two_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_EXP_PROGRESS", "pretty")
    with pytest.raises(ConfigError, match=r"GRPO_EXP_PROGRESS=pretty: .*; set live or plain"):
        build_console(io.StringIO())
