"""A pool of checker processes that can be killed, usable from any thread.

The processes are fresh interpreters (never forks of this one, which may hold a GPU), started when the first
answer needs them and ended with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import RunError
from grpo_exp.rewards.checker_process import CheckerDiedError, CheckerProcess

TIME_LIMIT_SECONDS = 5.0
"""Longest work on one answer; the clock starts when the work starts."""
MEMORY_LIMIT_BYTES = 4 * 2**30
"""Address space of the process that works on an answer."""


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
        self._idle: queue.LifoQueue[CheckerProcess | None] = queue.LifoQueue()
        self._all: set[CheckerProcess] = set()
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

    def judge_task(self, answer: str, entry: str) -> str:
        """Return what reasoning_gym's scorer gives for an answer, a number as text, or a slug where it gives none.

        Args:
            answer: The answer.
            entry: The task as JSON text.
        """
        return self._ask({"gym_entry": entry, "answer": answer})

    def _ask(self, request: Mapping[str, Any]) -> str:
        """Ask the next process that is free.

        One that is found dead says nothing about the answer: it may have been ended while it was idle. So a fresh one
        is asked once more, and only where that dies too the answer is a `crash`.

        Raises:
            RunError: No process starts.
        """
        worker = self._idle.get()
        died_at: set[str] = set()
        reason = ""
        try:
            while not reason:
                worker = worker or self._start()
                try:
                    reason = worker.ask(request, limit=self.limit)
                except CheckerDiedError as death:
                    self._drop(worker)
                    worker = None
                    stage = "start" if death.starting else "work"
                    if stage in died_at and death.starting:
                        raise RunError(
                            f"the process that checks mathematics died twice while it started: {death}\n"
                            "it needs the packages of this environment and free memory; give it both, or use fewer "
                            "processes with reward.engine.num_workers"
                        ) from death
                    reason = "crash" if stage in died_at else ""
                    died_at.add(stage)
            usable = worker is not None and worker.usable
        except BaseException:
            # An interrupt in mid-request leaves a reply on its way: such a process cannot be asked again.
            self._drop(worker)
            self._idle.put(None)
            raise
        if not usable:
            self._drop(worker)
        self._idle.put(worker if usable else None)
        return reason

    def _start(self) -> CheckerProcess:
        worker = CheckerProcess(self.memory_bytes)
        with self._lock:
            self._all.add(worker)
        return worker

    def close(self) -> None:
        """End all processes; the pool can be used again afterwards."""
        with self._lock:
            workers, self._all = self._all, set()
        idle: list[CheckerProcess | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for worker in workers:
            worker.close()
        for _ in idle:
            self._idle.put(None)

    def _drop(self, worker: CheckerProcess | None) -> None:
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
