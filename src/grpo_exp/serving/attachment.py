"""A run and its server: start one where the run has GPUs for it, wait for it, tell the workers, notice its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grpo_exp import devices, ports
from grpo_exp.errors import RunError
from grpo_exp.process_group import end_group
from grpo_exp.run_lock import read_owner
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.place import read_address, server_url, write_place
from grpo_exp.serving.readiness import ServerWaitEndedError, wait_for_server, wanted_of
from grpo_exp.serving.supervision import END_SECONDS
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.vllm import ServerVllm

_POLL_SECONDS = 0.2
#: `grpo-exp serve` asks vLLM twice and then kills it; only then is it killed itself.
_PATIENCE_SECONDS = 3 * END_SECONDS
_TOLD_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a front end has to know about the server of its run."""

    why_ended: Callable[[], str | None]
    """Returns why the run cannot go on without its server, or None."""
    gpus: str | None = None
    """GPUs that are left to the workers, as CUDA_VISIBLE_DEVICES names them; None is all of them."""


@contextlib.contextmanager
def attached(
    directory: RunDirectory,
    settings: RunSettings,
    *,
    tell: Callable[[str], None],
    why_over: Callable[[], str | None] = lambda: None,
) -> Iterator[Attachment]:
    """Have a server that is ready inside, where the run generates with one, and end it where the run started it.

    Args:
        directory: The run, whose newest attempt is about to start.
        settings: Of the run.
        tell: Is told what is waited for.
        why_over: Asked while waiting; a reason ends the wait.

    Raises:
        RunError: The server is not the right one, ended, or was not ready in time; or the wait was called off.
    """
    vllm = settings.vllm
    if vllm.mode != "server":
        yield Attachment(why_ended=lambda: None)
        return
    if vllm.num_gpus is None:
        _find(directory, settings, tell, why_over)
        yield Attachment(why_ended=lambda: _why_lost(directory, vllm))
        return
    visible = devices.list_visible_gpus()
    assert visible is not None  # the preflight refuses GPUs that nobody counts
    for_workers, for_server = devices.split_gpus(visible, vllm.num_gpus)
    with _own_server(directory, for_server) as process:

        def why_ended() -> str | None:
            if process.poll() is None:
                return None
            return f"the vLLM server of this run has ended with exit code {process.returncode}; {_log(directory)}"

        tell(f"vLLM starts on GPU {for_server}, and GPU {for_workers} train; {_log(directory)}")
        _find(directory, settings, tell, lambda: why_over() or why_ended())
        yield Attachment(why_ended, gpus=for_workers)


def _find(
    directory: RunDirectory,
    settings: RunSettings,
    tell: Callable[[str], None],
    why_over: Callable[[], str | None],
) -> None:
    """Wait for the server, and tell the workers where it is."""
    vllm = settings.vllm
    assert vllm.mode == "server"
    deadline = time.monotonic() + vllm.server_timeout_seconds
    if vllm.is_own:
        host, port = _await_address(directory, vllm, tell, why_over)
        vllm = vllm.model_copy(update={"server_host": host, "server_port": port})
    wait_for_server(
        server_url(vllm),
        wanted_of(settings),
        timeout_seconds=max(0.0, deadline - time.monotonic()),
        poll_seconds=_POLL_SECONDS,
        tell=tell,
        why_over=why_over,
    )
    group_port = vllm.group_port or ports.find_ports(["group"], [str(directory.path)])[0]
    write_place(directory, vllm.model_copy(update={"group_port": group_port}))
    tell(f"vLLM is ready at {server_url(vllm)}")


def _await_address(
    directory: RunDirectory, vllm: ServerVllm, tell: Callable[[str], None], why_over: Callable[[], str | None]
) -> tuple[str, int]:
    """Wait until the process that looks after the run's server says where it is.

    Raises:
        RunError: It does not.
    """
    started = told = time.monotonic()
    if vllm.num_gpus is None:
        tell(f"waiting for its vLLM server: grpo-exp serve {directory.path}")
    while True:
        reason = why_over()
        if reason is not None:
            raise ServerWaitEndedError(reason)
        owner, address = read_owner(directory.server_lock), read_address(directory)
        if owner.state == "alive" and address is not None:
            return ("127.0.0.1" if owner.host == os.uname().nodename else address[0]), address[1]
        now = time.monotonic()
        if now - started > vllm.server_timeout_seconds:
            raise RunError(
                f"{directory.path}: no vLLM server was ready within {vllm.server_timeout_seconds:.3g} s; start it with "
                "grpo-exp serve and this folder, name one that runs with vllm.server_host and vllm.server_port, or "
                "give GPUs of this node with vllm.num_gpus"
            )
        if now - told > _TOLD_EVERY_SECONDS:
            told = now
            tell("waiting for the vLLM server")
        time.sleep(_POLL_SECONDS)


def _why_lost(directory: RunDirectory, vllm: ServerVllm) -> str | None:
    if not vllm.is_own or read_owner(directory.server_lock).state == "alive":
        return None
    return "the vLLM server of this run has ended: grpo-exp serve looks after it no longer"


@contextlib.contextmanager
def _own_server(directory: RunDirectory, gpus: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `grpo-exp serve` for a run on this machine, and end it."""
    command = [sys.executable, "-m", "grpo_exp", "serve", str(directory.path), "--host=127.0.0.1"]
    with directory.server_log.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpus, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_group(process, (signal.SIGTERM, signal.SIGKILL), seconds=_PATIENCE_SECONDS)


def _log(directory: RunDirectory) -> str:
    return f"what it prints stands in {directory.server_log}"
