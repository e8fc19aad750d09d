"""A program in its sandbox, waiting for calls; and what its tests may use."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_exp.rewards.sandbox.interface import End, Job, Limits, Sandbox, Session

REASONS = {
    End.FAILED: "runtime_error",
    End.TIMEOUT: "timeout",
    End.MEMORY: "memory_limit",
    End.PROCESSES: "process_limit",
    End.OUTPUT: "output_limit",
    # A conversation that ended although nobody ended it: the program closed its pipe or left with exit code 0.
    End.STOPPED: "runtime_error",
    End.EXITED: "runtime_error",
}
"""What each end of a program is called in the scores."""
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Budget:
    """What the tests of one completion may use.

    Args:
        limits: Of one test; `wall_seconds` too.
        deadline: When all tests must be over, on the monotonic clock.
        stop_early: The first test that fails settles it.
    """

    limits: Limits
    deadline: float
    stop_early: bool

    def seconds(self) -> float:
        """Return the time for the next test, 0 or less when there is none."""
        return min(self.limits.wall_seconds, self.deadline - time.monotonic())


class ProgramServer:
    """A program in its sandbox, waiting for calls; started again where it ended.

    Args:
        sandbox: Where it runs.
        program: Its text.
        budget: Time and limits.
    """

    def __init__(self, sandbox: Sandbox, program: str, budget: Budget) -> None:
        self._sandbox, self._program, self._budget = sandbox, program, budget
        self._session: Session | None = None
        self.names: list[str] = []
        self.is_loadable = False
        """Whether the program was ever ready for a call."""
        self.failure = ""
        """Why the last request has no reply."""

    def start(self) -> bool:
        """Load the program if none is there; tell whether one is."""
        if self._session is not None:
            return True
        job = inside_job("serve", ["plain", "lines"], {"program.py": self._program})
        wall_seconds = max(0.0, self._budget.deadline - time.monotonic())
        # One process serves all tests, so what is limited for each test is the wait for its answer.
        limits = replace(self._budget.limits, wall_seconds=wall_seconds, cpu_seconds=math.ceil(wall_seconds) + 1)
        self._session = self._sandbox.start(job, limits)
        hello = self._exchange(None, self._budget.seconds())
        if hello is None:
            return False
        if "names" not in hello:
            failures = [slug for slug in ("syntax_error", "memory_limit") if slug == hello.get("failed")]
            self.close()
            self.failure = failures[0] if failures else "runtime_error"
            return False
        self.is_loadable = True
        self.names = [n for n in hello["names"] if isinstance(n, str)] if isinstance(hello["names"], list) else []
        return True

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the reply to a request; None, and `failure`, when there is none."""
        if self._session is None:
            return None
        try:
            line = json.dumps(request).encode()
        except RecursionError:  # a number of an object that is none, but deeply nested: it wrote that itself
            self._give_up()
            return None
        return self._exchange(line, seconds)

    def _give_up(self) -> None:
        self.close()
        self.failure = "runtime_error"

    def close(self) -> None:
        """End the program."""
        if self._session is not None:
            session, self._session = self._session, None
            self.failure = REASONS[session.close().end]

    def _exchange(self, line: bytes | None, seconds: float) -> dict[str, Any] | None:
        assert self._session is not None
        reply = self._session.exchange(line, seconds=seconds)
        if reply is None:
            self.close()
            return None
        try:
            message = json.loads(reply)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):  # it wrote to our pipe by itself
            self._give_up()
            return None
        return message


def inside_job(main: str, modules: list[str], files: dict[str, str]) -> Job:
    """Return a job that runs `main` of a module of this package, with the modules that it needs."""
    package = "grpo_exp/rewards/code"
    texts = {f"{package}/{name}.py": (_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in [main, *modules]}
    start = (
        "import os, sys\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path.insert(0, here)\n"
        f"from grpo_exp.rewards.code.{main} import main\n"
        "del sys.path[0]\n"
        "sys.argv[1:] = [os.path.join(here, 'program.py')]\n"
        "main()\n"
    )
    return Job("start.py", {"start.py": start, **texts, **files})
