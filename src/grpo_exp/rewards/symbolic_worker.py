r"""The checker's process: reads one request a line from stdin, writes one reply a line to stdout.

It is a supervisor that has loaded SymPy, and a fork of it that does the work. The clock of a request starts
when the fork gets it. A fork that runs over its limit is killed, and the next one is ready in milliseconds,
since nothing has to be loaded again. The supervisor ends when its stdin closes or its parent is gone, so that
no process outlives the run, not even one that hangs.

A request is `{"gold": text, "answer": text or null, "limit": seconds}`; without an answer the gold is
checked. With `{"pattern": text, "text": text, "whole": bool, "targets": list}` a regular expression is tried
instead, with `{"gym_entry": JSON text, "answer": text}` a scorer of reasoning_gym, whose value is the slug. A reply is
`{"reason": slug}`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from grpo_exp.rewards.comparison import compare
from grpo_exp.rewards.reading import read_shape
from grpo_exp.rewards.shapes import expressions_of
from grpo_exp.rewards.symbolic import SymbolicJudge, parse, vanishes

#: The caches of SymPy grow; a new fork starts from the loaded state again.
_REQUESTS_PER_FORK = 1000
#: Killing a process and having the next one ready takes time, too; it is part of the limit, not beyond it.
_ENDING_SECONDS = 0.15
_ENDING_SHARE = 0.1
_PARENT_CHECK_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
#: What a request to a scorer of reasoning_gym holds, and where it is.
_GYM, _PACKAGE = b'"gym_entry"', "reasoning_gym"

#: Expressions that load the parser's tables, so that the first answers do not pay for it.
_WARM_UP = (
    (r"\frac{1}{2}x+3y^2-\sqrt{5}", r"3y^2+\frac{x}{2}-\sqrt{5}"), (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"\frac{\pi}{6}", r"\frac{2\pi}{12}"), (r"6-5i", r"-5i+6"), (r"\cot x", r"\frac{\cos x}{\sin x}"),
    (r"(a+5)(b+2)", r"ab+2a+5b+10"), (r"\log_2 8+e^{2x}", r"3+e^{2x}"), (r"\binom{5}{2}+3!", "16"),
    (r"\left|x\right|", r"|x|"), (r"x_1+x_{12}", r"x_{12}+x_1"), (r"2k+2", r"2(k+1)"), (r"2^{10}", "1024"),
)  # fmt: skip


def answer_request(request: Mapping[str, Any]) -> str:
    """Return the reason slug of one request."""
    if "pattern" in request:
        return search_pattern(request["pattern"], request["text"], whole=request["whole"], targets=request["targets"])
    if "gym_entry" in request:
        return judge_task(request["answer"], json.loads(request["gym_entry"]))
    gold = read_shape(request["gold"] or "")
    if request["answer"] is None:
        return "match" if all(_can_be_judged(text) for text in expressions_of(gold)) else "unparsable_target"
    return compare(gold, read_shape(request["answer"]), SymbolicJudge())


def search_pattern(pattern: str, text: str, *, whole: bool, targets: Sequence[str]) -> str:
    """Return `match`, `no_match`, or `mismatch` where the group `answer` is none of the targets."""
    expression = re.compile(pattern)
    found = expression.fullmatch(text) if whole else expression.search(text)
    if found is None:
        return "no_match"
    if "answer" not in expression.groupindex:
        return "match"
    return "match" if (found["answer"] or "").strip() in {target.strip() for target in targets} else "mismatch"


def judge_task(answer: str, entry: Mapping[str, Any]) -> str:
    """Return what the scorer of a task of reasoning_gym gives for an answer, as text."""
    score = importlib.import_module(_PACKAGE).get_score_answer_fn(entry["metadata"]["source_dataset"])
    return repr(float(score(answer, dict(entry))))


def _can_be_judged(text: str) -> bool:
    """Tell whether an expression can be read, and compute with it: a power tower takes forever here."""
    parsed = parse(text)
    if isinstance(parsed, sympy.Expr):
        vanishes(parsed)
    return parsed is not None


@dataclass
class _Fork:
    """The process that works, and the supervisor's ends of its two pipes."""

    pid: int
    requests: int
    replies: int
    num_requests: int = 0

    @classmethod
    def start(cls, memory_bytes: int) -> _Fork:
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(request_write)
            os.close(reply_read)
            _work(request_read, reply_write, memory_bytes)
            os._exit(0)
        os.close(request_read)
        os.close(reply_write)
        return cls(pid, request_write, reply_read)

    def ask(self, line: bytes, limit: float, *, parent: int) -> bytes | None:
        """Return the reply to a request, or None when the fork died.

        Raises:
            TimeoutError: The limit (seconds) is over.
            ProcessLookupError: The parent is gone, so that nobody waits for the reply.
        """
        self.num_requests += 1
        try:
            _write_all(self.requests, line)
        except BrokenPipeError:
            return None
        limit -= min(_ENDING_SHARE * limit, _ENDING_SECONDS)
        deadline = time.monotonic() + limit
        while not select.select([self.replies], [], [], min(limit, _PARENT_CHECK_SECONDS))[0]:
            if os.getppid() != parent:
                raise ProcessLookupError
            if time.monotonic() >= deadline:
                raise TimeoutError
            limit = max(0.0, deadline - time.monotonic())
        return os.read(self.replies, 4096) or None

    def has_died(self) -> bool:
        """Tell whether it ended by itself, or was ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.replies)


def _work(requests: int, replies: int, memory_bytes: int) -> None:
    """Answer requests until the pipe closes (in the fork)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            try:
                reason = answer_request(json.loads(line))
            except RecursionError:
                reason = "unparsable"
            except Exception:  # whatever SymPy raises on an odd expression is counted as a crash
                reason = "crash"
            _write_all(replies, json.dumps({"reason": reason}).encode() + b"\n")


def _supervise(replies: int, memory_bytes: int) -> None:
    """Hand requests to the fork until stdin closes or the parent is gone."""
    parent = os.getppid()
    fork = _Fork.start(memory_bytes)
    buffer = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _PARENT_CHECK_SECONDS)[0]:
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            break
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            if _GYM in line and _PACKAGE not in sys.modules:
                fork = _load_gym(fork, memory_bytes)
            try:
                reply, fork = _ask(fork, line + b"\n", memory_bytes, parent=parent)
            except ProcessLookupError:
                fork.end()
                return
            _write_all(replies, reply)
    fork.end()


def _load_gym(fork: _Fork, memory_bytes: int) -> _Fork:
    """Load the package, which takes seconds, outside of the limit of an answer; forks from now on have it."""
    importlib.import_module(_PACKAGE)
    fork.end()
    return _Fork.start(memory_bytes)


def _ask(fork: _Fork, line: bytes, memory_bytes: int, *, parent: int) -> tuple[bytes, _Fork]:
    """Return the reply and the fork that takes the next request."""
    if fork.has_died():  # while it was idle, which says nothing about this request
        fork.end()
        fork = _Fork.start(memory_bytes)
    try:
        reply = fork.ask(line, float(json.loads(line)["limit"]), parent=parent)
        reason = "crash"
    except TimeoutError:
        reply, reason = None, "timeout"
    if reply is None or fork.num_requests >= _REQUESTS_PER_FORK:
        fork.end()
        fork = _Fork.start(memory_bytes)
    return reply or json.dumps({"reason": reason}).encode() + b"\n", fork


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main() -> None:
    """Load, say so, and serve; the first argument is the fork's address space in bytes."""
    memory_bytes = int(sys.argv[1])
    for gold, answer in _WARM_UP:
        answer_request({"gold": gold, "answer": answer})
    replies = os.dup(1)
    # A library that prints must not be taken for a reply, nor fill a pipe that nobody reads.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    _write_all(replies, b'{"reason": "ready"}\n')
    # Nobody may be left to read the reply; the kernel ends the fork with this process.
    with contextlib.suppress(BrokenPipeError):
        _supervise(replies, memory_bytes)


if __name__ == "__main__":
    main()
