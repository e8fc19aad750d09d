"""Errors a user can act on, and their exit codes."""

from __future__ import annotations

from grpo_exp.errors import ConfigError, DataError, ExitCode, RunError


def test_exit_codes_that_scripts_rely_on() -> None:
    codes = {code.name: int(code) for code in ExitCode}
    assert codes == {
        "COMPLETED": 0, "FAILED": 1, "WRONG_CONFIG": 2, "ENDED_BY_RULE": 3, "NOT_MINE": 4, "RESUMABLE": 85,
    }  # fmt: skip


def test_config_error_holds_one_fault_or_many() -> None:
    assert ConfigError("a").faults == ("a",)
    assert ConfigError(["a", "b"]).faults == ("a", "b")
    assert str(ConfigError(["a", "b"])) == "a\nb"


def test_errors_are_what_callers_catch() -> None:
    assert issubclass(DataError, ConfigError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(RunError, RuntimeError)
