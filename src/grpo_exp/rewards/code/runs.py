"""Run the tests of one completion, and say for each why it passed or failed."""

from __future__ import annotations

import json
import math
import secrets
import time
from dataclasses import replace
from typing import Any

from grpo_exp.rewards.code.plain import NotPlainError, to_plain
from grpo_exp.rewards.code.program_server import REASONS, Budget, ProgramServer, inside_job
from grpo_exp.rewards.code.same_value import is_same_text, is_same_value
from grpo_exp.rewards.code.unit_tests import AssertTests, CallTests, StdinTests, Tests
from grpo_exp.rewards.sandbox.interface import End, Job, Limits, Sandbox, Session

PASSED = "passed"
_SYNTAX_ERRORS = (b"SyntaxError:", b"IndentationError:", b"TabError:")
#: The judge loads while the machine may be busy; that it is slow is no fault of the tests.
_JUDGE_START_SECONDS = 60.0


class UnreadableTestsError(Exception):
    """The tests themselves cannot be run."""


def run_tests(sandbox: Sandbox, program: str, tests: Tests, budget: Budget) -> list[str]:
    """Run tests in order.

    Returns:
        One reason for each test, `passed` or a slug of the package's table; fewer where the first failure settles it.

    Raises:
        UnreadableTestsError: The tests themselves cannot be run.
        RunError: The sandbox itself does not work.
    """
    match tests:
        case StdinTests():
            return _run_stdin(sandbox, program, tests, budget)
        case CallTests():
            return _run_calls(sandbox, program, tests, budget)
        case AssertTests():
            return _run_asserts(sandbox, program, tests, budget)


def _run_stdin(sandbox: Sandbox, program: str, tests: StdinTests, budget: Budget) -> list[str]:
    job = Job("program.py", {"program.py": program})
    reasons: list[str] = []
    for given, expected in zip(tests.inputs, tests.outputs, strict=True):
        seconds = budget.seconds()
        if seconds <= 0:
            reasons.append("timeout")
        else:
            limits = replace(budget.limits, wall_seconds=seconds)
            reasons.append(_judge_output(sandbox, job, given, expected, limits))
        if budget.stop_early and reasons[-1] != PASSED:
            break
    return reasons


def _judge_output(sandbox: Sandbox, job: Job, given: str, expected: str, limits: Limits) -> str:
    outcome = sandbox.run(job, given.encode(errors="surrogatepass"), limits)
    if outcome.end is not End.EXITED:
        last_line = outcome.stderr.rstrip().rpartition(b"\n")[2]
        return "syntax_error" if last_line.startswith(_SYNTAX_ERRORS) else REASONS[outcome.end]
    return PASSED if is_same_text(expected, outcome.stdout.decode(errors="replace")) else "wrong_output"


def _run_calls(sandbox: Sandbox, program: str, tests: CallTests, budget: Budget) -> list[str]:
    try:
        calls = [[to_plain(argument) for argument in arguments] for arguments in tests.inputs]
        for expected in tests.outputs:
            to_plain(expected)  # what is no plain data can never be returned
    except NotPlainError as error:
        raise UnreadableTestsError(str(error)) from error
    server = ProgramServer(sandbox, program, budget)
    reasons: list[str] = []
    try:
        for arguments, expected in zip(calls, tests.outputs, strict=True):
            reasons.append(_judge_call(server, tests.function, arguments, expected, budget))
            if reasons[-1] != PASSED and (budget.stop_early or not server.is_loadable):
                break
    finally:
        server.close()
    if not server.is_loadable:
        reasons += [reasons[-1]] * (len(calls) - len(reasons))
    return reasons


def _judge_call(server: ProgramServer, function: str, arguments: list[Any], expected: Any, budget: Budget) -> str:
    if budget.seconds() <= 0:
        return "timeout"
    deadline = time.monotonic() + budget.seconds()
    if not server.start():
        return server.failure
    found = server.ask({"do": "find", "name": function}, deadline - time.monotonic())
    if found is None:
        return server.failure
    reference = found.get("value")
    if not isinstance(reference, dict):
        return "runtime_error" if "raised" in found else "missing_function"
    request = {"do": "call", "object": reference.get("object"), "arguments": arguments, "keywords": {"dict": []}}
    reply = server.ask(request, deadline - time.monotonic())
    if reply is None:
        return server.failure
    if "raised" in reply:
        return "memory_limit" if reply["raised"] == _MEMORY_ERROR else "runtime_error"
    return PASSED if is_same_value(expected, reply.get("value")) else "wrong_output"


_MEMORY_ERROR = [kind.__name__ for kind in MemoryError.__mro__]


def _run_asserts(sandbox: Sandbox, program: str, tests: AssertTests, budget: Budget) -> list[str]:
    # Both sandboxes start at the same time; the judge waits for the program.
    wall_seconds = _JUDGE_START_SECONDS + max(0.0, budget.deadline - time.monotonic())
    limits = replace(budget.limits, wall_seconds=wall_seconds, cpu_seconds=math.ceil(wall_seconds))
    judge = sandbox.start(inside_job("judge", ["plain", "lines", "remote", "tested_names"], {}), limits)
    server = ProgramServer(sandbox, program, budget)
    try:
        return _Trial(judge, server, budget).hold(tests.source)
    finally:
        judge.close()
        server.close()


class _Trial:
    """The conversation between the judge and the program, by way of us."""

    def __init__(self, judge: Session, server: ProgramServer, budget: Budget) -> None:
        self._judge, self._server, self._budget = judge, server, budget
        self._secret = secrets.token_hex(16)
        self._test_deadline = 0.0

    def hold(self, source: str) -> list[str]:
        """Run all tests; one reason each, `runtime_error` or what ended it for those that were not reached."""
        opening = self._listen({"tests": source, "secret": self._secret}, seconds=_JUDGE_START_SECONDS)
        if opening is None or "tests" not in opening or not opening["tests"]:
            raise UnreadableTestsError
        num_tests = opening["tests"]
        if not self._server.start():
            return [self._server.failure] * num_tests
        reasons: list[str] = []
        message = self._next({"names": self._server.names})
        while message is not None and "done" not in message:
            if "unreadable" in message:
                raise UnreadableTestsError
            if "test" in message:
                failure = self._server.failure if message["test"] == "runtime_error" else ""
                reasons.append(failure or message["test"])
                if not message["go_on"] or (self._budget.stop_early and reasons[-1] != PASSED):
                    break
                message = self._next(None)
            else:
                message = self._listen(self._relay(message["ask"]))
        is_done = message is not None and "done" in message
        # Not reached: the judge ended, which only what the program returned can have made it do.
        rest = self._server.failure or REASONS[self._judge.close().end]
        if is_done and len(reasons) == num_tests:
            return reasons
        # Without the last report there is no pass: at least one reason is a failure.
        reached = reasons[: num_tests - 1] if reasons and reasons[-1] == PASSED else reasons[:num_tests]
        last = next((reason for reason in reasons if reason != PASSED), rest)
        return reached + [last] * (num_tests - len(reached))

    def _relay(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hand a request of the judge to the program, and return its reply."""
        reply = self._server.ask(request, self._test_deadline - time.monotonic())
        return {"gone": True} if reply is None else reply

    def _next(self, message: dict[str, Any] | None) -> dict[str, Any] | None:
        """Start the clock of the next test."""
        seconds = self._budget.seconds()
        self._test_deadline = time.monotonic() + seconds
        return self._listen(message, seconds=seconds)

    def _listen(self, message: dict[str, Any] | None, *, seconds: float | None = None) -> dict[str, Any] | None:
        """Send the judge a message and return its next one; only requests come without the secret."""
        try:
            line = None if message is None else json.dumps(message).encode()
        except RecursionError:  # the reply of a program, nested as deeply as can be read
            line = json.dumps({"gone": True}).encode()
        limit = self._budget.limits.wall_seconds if seconds is None else seconds
        reply = self._judge.exchange(line, seconds=limit)
        if reply is None:
            return None
        try:
            said = json.loads(reply)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        return said if "ask" in said or said.get("secret") == self._secret else None
