"""Start the worker processes with `accelerate launch`, and end them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from grpo_exp.accelerate_config import build_environment, write_config
from grpo_exp.process_group import group_is_alive
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.worker import OWNER_VARIABLE

_KILL_AFTER_SECONDS = 10.0
#: How long workers may go on without their launcher, to end a step and save it: as long as torchrun gives them.
_ORPHANED_SECONDS = 30.0
_POLL_SECONDS = 0.05
#: Signals that ask a process to end: a launcher that one of them ended leaves workers that can still save.
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def build_command(settings: LaunchSettings, directory: RunDirectory, *, config: Path, port: int) -> list[str]:
    """Return the command line that starts all workers of a run on this machine."""
    return [
        sys.executable, "-m", "accelerate.commands.launch",
        "--config_file", str(config),
        "--num_processes", str(settings.num_processes),
        "--mixed_precision", settings.mixed_precision,
        "--main_process_port", str(port),
        "-m", "grpo_exp.worker", str(directory.path),
    ]  # fmt: skip


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class WorkerGroup:
    """The launcher and its workers, in a process group that a Ctrl-C in the terminal does not reach.

    Args:
        settings: How they are started.
        directory: The run.
        gpus: Those that they may see; None is all that this process sees.
    """

    def __init__(self, settings: LaunchSettings, directory: RunDirectory, *, gpus: str | None = None) -> None:
        self._directory = directory
        self._orphaned_since: float | None = None
        port = settings.main_process_port or free_port()
        config = directory.attempt_logs / "accelerate.json"
        write_config(settings, config)
        with directory.worker_log.open("ab") as log:
            self._process = subprocess.Popen(
                build_command(settings, directory, config=config, port=port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **build_environment(settings, os.environ, local_processes=settings.num_processes, gpus=gpus),
                    OWNER_VARIABLE: str(os.getpid()),
                },
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return the launcher's exit code, or None while it runs, or its workers end a step without it."""
        code = self._process.poll()
        was_asked_to_end = code is not None and -code in _REQUESTS
        if not was_asked_to_end or self._directory.result.exists() or not group_is_alive(self._process.pid):
            return code
        if self._orphaned_since is None:  # one worker's launcher is gone at once; that of several waits for them itself
            self._orphaned_since = time.monotonic()
            self._directory.stop_file.touch()
        return code if time.monotonic() - self._orphaned_since > _ORPHANED_SECONDS else None

    def kill(self) -> None:
        """End the launcher and all workers now, and return when none is left.

        What the launcher has left behind is asked first. Workers that train take a polite signal for a request to end
        their step, which is no end.
        """
        is_running = self._process.poll() is None
        for number in (signal.SIGKILL,) if is_running else (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return
            if self._is_gone_within(_KILL_AFTER_SECONDS):
                return

    def _is_gone_within(self, seconds: float) -> bool:
        """Wait for the whole group: workers may outlive the launcher that was told to end."""
        deadline = time.monotonic() + seconds
        while group_is_alive(self._process.pid):
            if time.monotonic() > deadline:
                return False
            self._process.poll()  # reaps the launcher
            time.sleep(_POLL_SECONDS)
        self._process.wait()  # it has ended, too: nobody has asked how yet
        return True
