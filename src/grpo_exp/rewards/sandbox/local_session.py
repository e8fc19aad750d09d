"""A program on this machine: started, fed, watched, ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from grpo_exp.rewards.sandbox import process_tree
from grpo_exp.rewards.sandbox.interface import End, Limits, Outcome, SandboxError

_WATCH_SECONDS = 0.02
_STDERR_BYTES = 4096
_CHUNK_BYTES = 65536
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a launcher.

    Args:
        command: Its command line.
        environment: Its environment.
        report: The end of the pipe that the launcher writes to.
        inherited: Other descriptors that it needs.
        has_namespace: Its process is the first one of a process namespace, below the process that we start.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    report: int
    inherited: Sequence[int]
    has_namespace: bool


class LocalSession:
    """A `Session` on this machine.

    Args:
        launch: How to start the launcher; its descriptors stay the caller's.
        report: Our end of the pipe; closed by this session.
        limits: What is watched from outside: time, memory, processes, output.
        at_end: Called when all is gone.
    """

    def __init__(
        self, launch: Launch, report: int, limits: Limits, *, at_end: Callable[[], None] = lambda: None
    ) -> None:
        self._at_end = at_end
        self._limits, self._has_namespace, self._report = limits, launch.has_namespace, report
        self._process = subprocess.Popen(
            launch.command, env=launch.environment, pass_fds=[launch.report, *launch.inherited], bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for descriptor in (self._stdin.fileno(), self._stdout.fileno(), self._stderr.fileno(), report):
            os.set_blocking(descriptor, False)
        self._deadline = time.monotonic() + limits.wall_seconds
        self._next_watch = 0.0
        self._poll = select.poll()  # not select(): a training process may hold more than 1024 open files
        for file in (self._stdout, self._stderr):
            self._poll.register(file, select.POLLIN)
        self._poll.register(report, select.POLLIN)
        self._to_send, self._received, self._errors, self._reported = bytearray(), bytearray(), bytearray(), bytearray()
        self._end: End | None = None
        self._outcome: Outcome | None = None

    def run(self, stdin: bytes) -> Outcome:
        """Feed a program, wait for its end, and return what became of it."""
        try:
            self._send(stdin)
            while self._end is None and not self._has_report_ended():
                self._pump(self._deadline)
                if not self._to_send and not self._stdin.closed:
                    self._stop_sending()
        finally:
            outcome = self.close()
        return outcome

    def exchange(self, line: bytes | None, *, seconds: float) -> bytes | None:
        """Send a line and return the next one; see `interface.Session`."""
        if self._end is not None:
            return None
        if line is not None:
            self._send(line + b"\n")
        deadline = min(self._deadline, time.monotonic() + seconds)
        while (end := self._received.find(b"\n")) < 0:
            if self._end is not None:
                return None
            if not self._has_report_ended():
                self._pump(deadline)
                continue
            self._read_rest()
            if b"\n" not in self._received:
                return None
        reply = bytes(self._received[:end])
        del self._received[: end + 1]
        return reply

    def close(self) -> Outcome:
        """End everything and return what became of the program; see `interface.Session`."""
        if self._outcome is None:
            try:
                self._end_processes()
                self._read_rest()
                self._outcome = self._judge_end()
            finally:
                for file in (self._stdin, self._stdout, self._stderr):
                    file.close()
                os.close(self._report)
                self._at_end()
        return self._outcome

    def _pump(self, deadline: float) -> None:
        """Move bytes for at most a moment, and look at the limits."""
        now = time.monotonic()
        if now >= deadline:
            self._end = End.TIMEOUT
            return
        if now >= self._next_watch:
            self._watch()
            self._next_watch = time.monotonic() + _WATCH_SECONDS
        for descriptor, _ in self._poll.poll(max(1.0, min(_WATCH_SECONDS, deadline - now) * 1000)):
            if descriptor == self._stdout.fileno():
                self._read(self._stdout, self._received)
                if len(self._received) > self._limits.output_bytes:
                    self._end = self._end or End.OUTPUT
            elif descriptor == self._stderr.fileno():
                self._read(self._stderr, self._errors)
                del self._errors[:-_STDERR_BYTES]
            elif descriptor == self._report:
                self._read_report()
            else:
                self._write()

    def _watch(self) -> None:
        """Compare memory and processes with the limits; these are what no limit of the kernel bounds for us."""
        processes = process_tree.descendants(self._process.pid)
        limit = self._limits.memory_bytes
        too_much = process_tree.memory_bytes(processes) > limit and process_tree.shared_fairly_bytes(processes) > limit
        if too_much:
            self._end = self._end or End.MEMORY
        # Two more: the launcher, and the one that is about to fail.
        if len(processes) > self._limits.num_processes + 2:
            self._end = self._end or End.PROCESSES

    def _read(self, file: IO[bytes], into: bytearray) -> None:
        try:
            chunk = os.read(file.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            into += chunk
        else:
            self._poll.unregister(file)

    def _read_report(self) -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._report, _CHUNK_BYTES)
            self._reported += chunk or b"\0"

    def _has_report_ended(self) -> bool:
        return b"\nended " in self._reported or self._reported.endswith(b"\0")

    def _send(self, data: bytes) -> None:
        if not self._to_send and data and not self._stdin.closed:
            self._poll.register(self._stdin, select.POLLOUT)
        self._to_send += data

    def _write(self) -> None:
        try:
            sent = os.write(self._stdin.fileno(), memoryview(self._to_send)[:_CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:  # the program does not want to read; that is its right
            self._to_send.clear()
            self._stop_sending()
            return
        del self._to_send[:sent]
        if not self._to_send:
            self._poll.unregister(self._stdin)

    def _stop_sending(self) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(self._stdin)
        self._stdin.close()

    def _end_processes(self) -> None:
        """End the launcher and with it everything else, and wait until all is gone."""
        if not self._has_report_ended():
            self._end = self._end or End.STOPPED
            if self._has_namespace:
                # The first process of the namespace, not ours above it: that one then collects it.
                for first in process_tree.children(self._process.pid):
                    process_tree.kill(first, parent=self._process.pid)
            else:
                self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            for process in reversed(process_tree.descendants(self._process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.kill()
            self._process.wait()

    def _read_rest(self) -> None:
        """Read what was written before the end; somebody who escaped may hold a pipe open, so never wait."""
        self._read_report()
        for file, into in ((self._stdout, self._received), (self._stderr, self._errors)):
            while len(into) <= self._limits.output_bytes + _STDERR_BYTES:
                before = len(into)
                with contextlib.suppress(KeyError):
                    self._read(file, into)
                if len(into) == before:
                    break

    def _judge_end(self) -> Outcome:
        report = bytes(self._reported).rstrip(b"\0").decode(errors="replace").splitlines()
        errors = bytes(self._errors[-_STDERR_BYTES:])
        failed = next((line for line in report if line.startswith("failed ")), None)
        if failed is not None or (report[:1] != ["started"] and self._end in {None, End.STOPPED}):
            said = failed or errors.decode(errors="replace").strip() or "nothing"
            raise SandboxError(
                f"the sandbox did not start a program; it said: {said}; "
                "`grpo-exp check` tells what this machine lacks, reward.components.NAME.sandbox names another one"
            )
        ended = next((json.loads(line.removeprefix("ended ")) for line in report if line.startswith("ended ")), None)
        output = bytes(self._received[: self._limits.output_bytes])
        end = self._end
        if end is None and len(self._received) > self._limits.output_bytes:
            end = End.OUTPUT
        return Outcome(end or _end_of(ended, errors), output, errors)


def _end_of(report: dict[str, int] | None, errors: bytes) -> End:
    """Say how a program ended that ended before we did anything."""
    if report is None:
        return End.FAILED  # it ended the launcher, which only `unsafe_subprocess` lets it do
    if report["code"] == 0:
        return End.EXITED
    if report["code"] == -signal.SIGXCPU:
        return End.TIMEOUT
    last_line = errors.rstrip().rpartition(b"\n")[2]
    return End.MEMORY if last_line.startswith(b"MemoryError") else End.FAILED
