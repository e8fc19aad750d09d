"""Start the worker processes with `accelerate launch`, and end them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from grpo_exp.devices import uses_cpu
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.worker import OWNER_VARIABLE

_KILL_AFTER_SECONDS = 10.0
_POLL_SECONDS = 0.05
#: Variables that accelerate takes settings from.
_ACCELERATE = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")


def build_accelerate_config(settings: LaunchSettings) -> dict[str, Any]:
    """Return what `accelerate launch` reads instead of the file that `accelerate config` wrote on this machine.

    That file may ask for DeepSpeed, other GPUs or other processes; accelerate reads it wherever none is named.
    """
    return {
        "compute_environment": "LOCAL_MACHINE",
        # On a CPU, too: with use_cpu several processes are silently one. ACCELERATE_USE_CPU makes them gloo ranks.
        "distributed_type": "MULTI_GPU" if settings.num_processes > 1 else "NO",
        "num_machines": 1,
        "num_processes": settings.num_processes,
        "mixed_precision": settings.mixed_precision,
        "use_cpu": settings.num_processes == 1 and uses_cpu(settings.device),
        "dynamo_backend": "NO",
    }


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


def build_environment(settings: LaunchSettings) -> dict[str, str]:
    """Return the workers' environment: the caller's, without what it tells accelerate."""
    threads = settings.threads_per_process or max(1, len(os.sched_getaffinity(0)) // settings.num_processes)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_ACCELERATE)}
    environment = {
        **inherited,
        OWNER_VARIABLE: str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if uses_cpu(settings.device):
        environment["ACCELERATE_USE_CPU"] = "true"
    return environment


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class WorkerGroup:
    """The launcher and its workers, in a process group that a Ctrl-C in the terminal does not reach."""

    def __init__(self, settings: LaunchSettings, directory: RunDirectory) -> None:
        port = settings.main_process_port or free_port()
        config = directory.attempt_logs / "accelerate.json"
        write_json(config, build_accelerate_config(settings))
        with directory.worker_log.open("ab") as log:
            self._process = subprocess.Popen(
                build_command(settings, directory, config=config, port=port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=build_environment(settings),
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return the launcher's exit code, or None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End the launcher and all workers now: politely, then not. Return when none is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return
            if self._is_gone_within(_KILL_AFTER_SECONDS):
                return

    def _is_gone_within(self, seconds: float) -> bool:
        """Wait for the whole group: workers may outlive the launcher that was told to end."""
        deadline = time.monotonic() + seconds
        while _group_is_alive(self._process.pid):
            if time.monotonic() > deadline:
                return False
            self._process.poll()  # reaps the launcher
            time.sleep(_POLL_SECONDS)
        return True


def _group_is_alive(group: int) -> bool:
    """Say whether a process group has a member that runs; one that nobody reaps is dead all the same."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX" and int(fields[2]) == group:
                return True
    return False
