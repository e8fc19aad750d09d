"""One process that checks answers: a fresh interpreter, asked over a pipe, killed when it must be."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from grpo_exp.errors import RunError

#: The process enforces the limit itself; only one that is itself gone wrong is waited for this much longer.
_GRACE_SECONDS = 10.0
_START_LIMIT_SECONDS = 120.0
_END_LIMIT_SECONDS = 5.0
_MODULE = "grpo_exp.rewards.symbolic_worker"


class CheckerDiedError(Exception):
    """A checker process ended by itself, or somebody ended it.

    Args:
        ending: How, for messages.
        starting: It had not loaded yet.
    """

    def __init__(self, ending: str, *, starting: bool) -> None:
        super().__init__(ending)
        self.starting = starting


class CheckerProcess:
    """One checker process.

    Args:
        memory_bytes: Address space of its fork, which does the work.
    """

    def __init__(self, memory_bytes: int) -> None:
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        environment |= {
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
        }
        # A session of its own: an interrupt from the terminal ends the run, which then ends this process.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(memory_bytes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env=environment, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._requests, self._replies, self._errors = self._process.stdin, self._process.stdout, self._process.stderr
        self._ready = False
        self.usable = True

    def ask(self, request: Mapping[str, Any], *, limit: float) -> str:
        """Return the reason slug of one request; `crash`, and not `usable` any more, when no reply comes.

        Raises:
            CheckerDiedError: The process is gone, which may have nothing to do with the request.
            RunError: It does not start.
        """
        self._wait_until_ready()
        line = json.dumps({**request, "limit": limit}).encode() + b"\n"
        try:
            while line:
                line = line[self._requests.write(line) or 0 :]
            reply = self._read_line(limit + _GRACE_SECONDS)
        except (BrokenPipeError, EOFError) as error:
            raise CheckerDiedError(self._ending(), starting=False) from error
        if reply is None:
            self.usable = False
            return "crash"
        return str(json.loads(reply)["reason"])

    def kill(self) -> None:
        """End the process and its fork at once."""
        self._kill()
        self._errors.close()

    def close(self) -> None:
        """Ask the process to end, and make sure that it does."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_SECONDS)
        self.kill()

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            line = self._read_line(_START_LIMIT_SECONDS)
        except EOFError as error:
            ending = self._ending()
            raise CheckerDiedError(f"{ending}; it wrote:\n{self._last_words()}", starting=True) from error
        if line is None:
            raise RunError(
                f"the process that checks mathematics did not start within {_START_LIMIT_SECONDS:.0f} s; it needs a "
                f"free core and the packages of this environment; it wrote:\n{self._last_words()}"
            )
        self._ready = True

    def _ending(self) -> str:
        """Return how the process ended; one that only closed its pipe is ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_SECONDS)
        code = self._process.poll()
        if code is None:
            return "it closed its output"
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"signal {-code} ended it ({signal.strsignal(-code)})"

    def _last_words(self) -> str:
        """End the process and return the end of what it wrote to stderr."""
        self._kill()
        return self._errors.read().decode(errors="replace")[-2000:]

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._requests.close()
        self._replies.close()

    def _read_line(self, limit: float) -> bytes | None:
        """Return the next line, or None when the limit (seconds) is over.

        Raises:
            EOFError: The process closed its end.
        """
        # Not select(): a training process may hold more than 1024 open files.
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        deadline = time.monotonic() + limit
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            chunk = os.read(self._replies.fileno(), 4096)
            if not chunk:
                raise EOFError
            line += chunk
        return line
