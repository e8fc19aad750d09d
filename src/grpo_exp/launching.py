"""Start the worker processes with `accelerate launch`, and end them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.worker import OWNER_VARIABLE

_KILL_AFTER_SECONDS = 10.0


def uses_cpu(settings: LaunchSettings) -> bool:
    """Say whether the workers will run on the CPU, without importing torch."""
    if settings.device != "auto":
        return settings.device == "cpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return True
    return not Path("/proc/driver/nvidia/gpus").is_dir() and shutil.which("nvidia-smi") is None


def build_command(settings: LaunchSettings, directory: RunDirectory, *, port: int) -> list[str]:
    """Return the command line that starts all workers of a run on this machine."""
    count = settings.num_processes
    command = [
        sys.executable, "-m", "accelerate.commands.launch",
        "--num_processes", str(count),
        "--num_machines", "1",
        "--mixed_precision", settings.mixed_precision,
        "--dynamo_backend", "no",
        "--main_process_port", str(port),
    ]  # fmt: skip
    if count > 1:
        # On a CPU, too: `--cpu` with several processes silently starts one. ACCELERATE_USE_CPU makes them gloo
        # ranks.
        command.append("--multi_gpu")
    elif uses_cpu(settings):
        command.append("--cpu")
    return [*command, "-m", "grpo_exp.worker", str(directory.path)]


def build_environment(settings: LaunchSettings) -> dict[str, str]:
    """Return the workers' environment."""
    threads = settings.threads_per_process or max(1, len(os.sched_getaffinity(0)) // settings.num_processes)
    environment = {
        **os.environ,
        OWNER_VARIABLE: str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if uses_cpu(settings):
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
        with directory.worker_log.open("ab") as log:
            self._process = subprocess.Popen(
                build_command(settings, directory, port=port),
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
        """End all processes now: politely, then not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(_KILL_AFTER_SECONDS)
                return
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                return
