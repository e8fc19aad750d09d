"""The end of a run: what is printed, and the result where the workers left none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grpo_exp.conclusion import conclude, lost_result
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, write_json, write_text
from unit.run_folder import a_console, a_result, settings_of


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    return directory


def concluded(directory: RunDirectory) -> tuple[int, str]:
    console, out = a_console()
    return conclude(directory, settings_of(directory.path.parent), console), out.getvalue()


def test_only_what_happened_in_the_newest_attempt_is_told(directory: RunDirectory) -> None:
    """The first attempt broke and was drawn; the second one is sound, and has no picture."""
    directory.add_event("critical", "train/loss is not finite", step=3)
    write_text(directory.curves, "a picture")
    begin_attempt(directory)
    directory.add_event("restart", "attempt 2 starts from the beginning")
    directory.add_event("warning", "groups are dead [/here]", step=4)  # no markup of the console
    write_json(directory.result, a_result())
    code, text = concluded(directory)
    assert code == 0
    assert "Completed after 5 steps in 0:12: all steps done" in text
    assert "warning (step 4): groups are dead [/here]" in text
    assert "not finite" not in text
    assert "curves.png" not in text


def test_failed_run_names_its_log(directory: RunDirectory) -> None:
    write_json(directory.result, a_result(status="failed", reason="ValueError: x", exit_code=1))
    code, text = concluded(directory)
    assert code == 1
    assert f"log      {directory.worker_log}" in text


def test_run_that_was_taken_over_is_not_claimed(directory: RunDirectory) -> None:
    code, text = concluded(directory)
    assert code == 1
    assert "another process has taken over this run" in text


def test_lost_result_says_how_far_the_run_came_and_what_the_log_says_last(directory: RunDirectory) -> None:
    directory.metrics.write_text(
        '{"step": 0, "time": 1.0, "metrics": {}}\n{"step": 3, "time": 2.0, "metrics": {}}\n{"step": 4, "ti'
    )
    directory.worker_log.write_text("step 3\nraise RunError: x\nRuntimeError: boom\nclosing down\n")
    assert lost_result(directory, reason=None, seconds=7.5) == {
        "status": "failed", "resumable": False, "reason": "RuntimeError: boom", "exit_code": 1, "steps": 3, "eval": {},
        "wall_seconds": 7.5,
    }  # fmt: skip


def test_lost_result_of_workers_that_said_nothing(directory: RunDirectory) -> None:
    result = lost_result(directory, reason=None, seconds=1.0)
    assert result["reason"] == "the workers ended without an error message: killed, or out of memory?"
    assert (result["status"], result["steps"]) == ("failed", 0)


def test_lost_result_after_a_request_to_stop_is_a_stop(directory: RunDirectory) -> None:
    directory.stop_file.touch()
    result = lost_result(directory, reason=None, seconds=1.0)
    assert (result["status"], result["reason"]) == ("stopped", "ended before the workers could write a result")
    assert lost_result(directory, reason="ended at once", seconds=1.0)["reason"] == "ended at once"


def test_folder_that_is_gone_is_not_taken_for_a_run_of_others(directory: RunDirectory) -> None:
    settings, (console, out) = settings_of(directory.path.parent), a_console()
    shutil.rmtree(directory.path)
    assert conclude(directory, settings, console) == 1
    assert "the run's folder is gone" in out.getvalue()
    assert "another process" not in out.getvalue()


def test_killed_worker_is_told_in_words(directory: RunDirectory) -> None:
    """The launcher writes an exception with the whole command line; what matters is the signal."""
    line = "subprocess.CalledProcessError: Command '['python', '-m', 'x']' died with <Signals.SIGKILL: 9>."
    write_text(directory.worker_log, f"Traceback ...\n{line}\n")
    reason = lost_result(directory, reason=None, seconds=1.0)["reason"]
    assert reason == "a worker was ended by SIGKILL: out of memory, or killed by somebody"


def test_findings_are_listed_in_one_line_each_without_those_that_are_only_logged(directory: RunDirectory) -> None:
    """What to try was shown when they were found, and stands in the events. Those of older versions had less."""
    directory.add_event("warning", "half of it was cut off", rule="truncated", step=11)
    finding = {"rule": "truncation", "action": "alert", "step": 12, "since": 3, "why": "w", "advice": "raise it"}
    directory.add_event("warning", "half of it is cut off", **finding)
    directory.add_event("info", "at its best", **finding)
    directory.add_event("warning", "it is slow", **{**finding, "action": "log"})
    write_json(directory.result, a_result())
    _, text = concluded(directory)
    assert text.splitlines()[-3:] == [
        "warning (step 12, since 3): half of it is cut off",
        f"advice   what to try stands in {directory.events}",
        "warning (step 11): half of it was cut off",
    ]
