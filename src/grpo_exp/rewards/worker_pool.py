"""A pool of checker processes that can be killed, usable from any thread.

The processes are fresh interpreters (never forks of this one, which may hold a GPU), started when the first
answer needs them and ended with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import RunError

TIME_LIMIT_SECONDS = 5.0
"""Longest work on one answer; the clock starts when the work starts."""
MEMORY_LIMIT_BYTES = 4 * 2**30
"""Address space of the process that works on an answer."""
#: The process enforces the limit itself; only one that is itself gone wrong is waited for this much longer.
_GRACE_SECONDS = 10.0
_START_LIMIT_SECONDS = 120.0
_END_LIMIT_SECONDS = 5.0
_MODULE = "grpo_exp.rewards.symbolic_worker"


class _Worker:
    """One checker process; `memory_bytes` limits the address space of its fork."""

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
        self._requests, self._replies, self._errors = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        self._ready = False
        self.usable = True

    def wait_until_ready(self) -> None:
        """Wait for the process to have loaded.

        Raises:
            RunError: It cannot start; the message holds what it wrote.
        """
        if self._ready:
            return
        if self._read_line(_START_LIMIT_SECONDS) is None:
            self.kill(close_errors=False)
            errors = self._errors.read().decode(errors="replace")[-2000:]
            self._errors.close()
            raise RunError(
                f"the process that checks mathematics did not start within {_START_LIMIT_SECONDS:.0f} s; it "
                f"needs the packages of this environment; it wrote:\n{errors}"
            )
        self._ready = True

    def ask(self, request: Mapping[str, Any], *, limit: float) -> str:
        """Return the reason slug of one request; `crash` when the process is gone."""
        line = json.dumps({**request, "limit": limit}).encode() + b"\n"
        try:
            while line:
                line = line[self._requests.write(line) or 0 :]
            reply = self._read_line(limit + _GRACE_SECONDS)
        except BrokenPipeError:
            reply = None
        if reply is None:
            self.usable = False
            return "crash"
        return str(json.loads(reply)["reason"])

    def kill(self, *, close_errors: bool = True) -> None:
        """End the process and its fork at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._close(close_errors=close_errors)

    def close(self) -> None:
        """Ask the process to end, and make sure that it does."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_SECONDS)
        self.kill()

    def _close(self, *, close_errors: bool) -> None:
        self._process.wait()
        self._requests.close()
        self._replies.close()
        if close_errors:
            self._errors.close()

    def _read_line(self, limit: float) -> bytes | None:
        """Return the next line, or None when the process ended or the limit (seconds) is over."""
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
                return None
            line += chunk
        return line


class WorkerPool:
    """Checker processes for as many answers at a time as there are processes.

    Args:
        num_workers: Most processes; each starts when it is first needed.
        limit: Longest work on one answer in seconds.
        memory_bytes: Address space of the process that works on an answer.
    """

    def __init__(
        self, num_workers: int, limit: float = TIME_LIMIT_SECONDS, *, memory_bytes: int = MEMORY_LIMIT_BYTES
    ) -> None:
        self.num_workers = num_workers
        self.limit = limit
        self.memory_bytes = memory_bytes
        self.owner = os.getpid()
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        for _ in range(num_workers):
            self._idle.put(None)  # a place for a process that has not been started

    def ask(self, gold: str, answer: str | None) -> str:
        """Return the reason slug for an answer, or of the gold alone where the answer is None.

        Blocks while all processes are busy.
        """
        return self._ask({"gold": gold, "answer": answer})

    def search(self, pattern: str, text: str, *, whole: bool, targets: Sequence[str]) -> str:
        """Return the reason slug of a text under a regular expression, which may take forever.

        Args:
            pattern: Valid for Python's `re`.
            text: The answer.
            whole: The pattern must cover all of it.
            targets: What a group named `answer` may be.
        """
        return self._ask({"pattern": pattern, "text": text, "whole": whole, "targets": list(targets)})

    def _ask(self, request: Mapping[str, Any]) -> str:
        worker = self._idle.get()
        try:
            if worker is None:
                worker = _Worker(self.memory_bytes)
                with self._lock:
                    self._all.add(worker)
            worker.wait_until_ready()
            reason = worker.ask(request, limit=self.limit)
        except BaseException:
            # An interrupt in mid-request leaves a reply on its way: such a process cannot be asked again.
            self._drop(worker)
            self._idle.put(None)
            raise
        if not worker.usable:
            self._drop(worker)
            worker = None
        self._idle.put(worker)
        return reason

    def close(self) -> None:
        """End all processes; the pool can be used again afterwards."""
        with self._lock:
            workers, self._all = self._all, set()
        idle: list[_Worker | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for worker in workers:
            worker.close()
        for _ in idle:
            self._idle.put(None)

    def _drop(self, worker: _Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._all.discard(worker)
            worker.kill()


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What one pool may use.

    Args:
        timeout_seconds: Longest work on one answer.
        num_workers: Processes; None is what suits the machine.
        memory_bytes: Address space of the process that works on an answer.
    """

    timeout_seconds: float = TIME_LIMIT_SECONDS
    num_workers: int | None = None
    memory_bytes: int = MEMORY_LIMIT_BYTES


_limits: list[PoolLimits] = [PoolLimits()]
_shared: list[WorkerPool] = []
#: Pools of the process that this one was forked from; kept, since dropping one would touch its processes.
_inherited: list[WorkerPool] = []
_shared_lock = threading.Lock()


def shared_pool() -> WorkerPool:
    """Return the pool of this process, made at the first call.

    A forked child (a data loader's) gets one of its own, since two processes must not write to one pipe.
    """
    with _shared_lock:
        if not _shared or _shared[0].owner != os.getpid():
            limits = _limits[0]
            _shared[:] = [
                WorkerPool(
                    limits.num_workers or default_num_workers(),
                    limits.timeout_seconds,
                    memory_bytes=limits.memory_bytes,
                )
            ]
            atexit.register(_shared[0].close)
        return _shared[0]


def limit_shared_pool(limits: PoolLimits) -> None:
    """Set the limits of this process's pool; one that runs under other limits is ended.

    Call it before anything is scored, not while another thread waits for an answer.
    """
    with _shared_lock:
        outdated = _shared.pop() if _shared and _shared[0].owner == os.getpid() and _limits[0] != limits else None
        _limits[0] = limits
    if outdated is not None:
        atexit.unregister(outdated.close)
        outdated.close()


def default_num_workers() -> int:
    """Return how many processes suit this machine: its cores shared among the ranks on it, 1 to 8."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(8, cores // max(1, ranks)))


def _forget_in_child() -> None:
    """Drop what the parent of a fork owns; its lock may be held by a thread that the child does not have."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _inherited.extend(_shared)
    _shared.clear()


os.register_at_fork(after_in_child=_forget_in_child)
