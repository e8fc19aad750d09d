"""Look after the vLLM server of a run: start it, wait until it is ready, say where it is, and end it with the run.

`grpo-exp serve RUN` does this in the foreground; a run with `vllm.num_gpus` starts the same command beside itself. So
there is one process that owns the server, and it looks at the run's lock: a front end that was killed costs no GPU.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grpo_exp import ports
from grpo_exp.errors import ExitCode, RunError
from grpo_exp.process_group import end_group
from grpo_exp.run_lock import Lock, read_owner
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.command import build_serve_command, build_serve_environment
from grpo_exp.serving.place import tell_address
from grpo_exp.serving.readiness import ServerWaitEndedError, wait_for_server, wanted_of
from grpo_exp.settings.run import RunSettings
from grpo_exp.vllm_package import find_vllm

_POLL_SECONDS = 0.2
#: vLLM gets this long to end by itself after each of two requests.
END_SECONDS = 15.0
_EVERYWHERE = "0.0.0.0"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class Service:
    """A server to be looked after."""

    directory: RunDirectory
    """The run; its folder must exist."""
    settings: RunSettings
    """Of the run, with `vllm.mode=server`."""
    host: str = _EVERYWHERE
    """Address to listen on."""

    @property
    def told_host(self) -> str:
        """Host by which others reach it."""
        return socket.gethostname() if self.host == _EVERYWHERE else self.host


class RunWatch:
    """Looks whether a run still needs its server.

    Args:
        directory: The run.
        patience_seconds: How long the run may take to begin.
    """

    def __init__(self, directory: RunDirectory, *, patience_seconds: float) -> None:
        self._directory = directory
        self._patience = patience_seconds
        self._since = time.monotonic()
        self._has_begun = False

    def why_over(self) -> str | None:
        """Return why the server is not needed any more, or None."""
        if read_owner(self._directory.lock).state == "alive":
            self._has_begun = True
        elif self._has_begun:
            return "the run has ended"
        elif time.monotonic() - self._since > self._patience:
            return f"no run has begun within {self._patience:.3g} s (vllm.server_timeout_seconds)"
        return None


def serve(service: Service, tell: Callable[[str], None]) -> int:
    """Serve until the run has ended, and return the exit code: 0, or 1 where the server ended first.

    Raises:
        ConfigError: The model has no files to serve.
        RunError: Another process looks after a server of this run, or it was not ready in time.
    """
    directory, vllm = service.directory, service.settings.vllm
    assert vllm.mode == "server"
    lock = Lock(directory.server_lock)
    lock.acquire()
    try:
        port = vllm.server_port or ports.find_ports(["server"], [str(directory.path)])[0]
        package = None if vllm.serve_command else find_vllm()  # of another environment nobody knows the version
        words = build_serve_command(service.settings, host=service.host, port=port, package=package)
        watch = RunWatch(directory, patience_seconds=vllm.server_timeout_seconds)
        tell(shlex.join(words))
        with _asked_to_end() as why_asked, _running(words) as process:
            return _until_over(service, process, port, lambda: why_asked() or watch.why_over(), tell)
    finally:
        directory.server.unlink(missing_ok=True)
        lock.release()


def _until_over(
    service: Service,
    process: subprocess.Popen[bytes],
    port: int,
    why_over: Callable[[], str | None],
    tell: Callable[[str], None],
) -> int:
    vllm = service.settings.vllm
    assert vllm.mode == "server"

    def why_no_wait() -> str | None:
        return why_over() or (None if process.poll() is None else _how_it_ended(process))

    address = "127.0.0.1" if service.host == _EVERYWHERE else service.host
    with contextlib.suppress(ServerWaitEndedError):  # why is asked again below, as for what ends it later
        wait_for_server(
            f"http://{address}:{port}",
            wanted_of(service.settings),
            timeout_seconds=vllm.server_timeout_seconds,
            poll_seconds=_POLL_SECONDS,
            tell=tell,
            why_over=why_no_wait,
        )
        tell_address(service.directory, host=service.told_host, port=port)
        tell(f"ready at http://{service.told_host}:{port}")
        while process.poll() is None and why_over() is None:
            time.sleep(_POLL_SECONDS)
    reason = why_over()
    if process.poll() is not None and reason is None:
        raise RunError(_how_it_ended(process))
    tell(f"{reason}: ending the server")
    return ExitCode.COMPLETED


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    return f"vLLM ended by itself with exit code {process.returncode}; what it printed says why"


@contextlib.contextmanager
def _running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own, and leave none of it behind."""
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, env=build_serve_environment(os.environ), start_new_session=True
    )
    try:
        yield process
    finally:
        end_group(process, (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), seconds=END_SECONDS)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[Callable[[], str | None]]:
    """Take signals for requests to end."""
    asked: list[int] = []
    previous = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in _SIGNALS}
    try:
        yield lambda: signal.Signals(asked[0]).name if asked else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
