"""A run inside worker processes that the user started with `accelerate launch -m grpo_exp.train ...`.

Rank 0 alone composes, checks and owns the run directory; it broadcasts the folder, or the exit code of a
fault.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from grpo_exp.adoption import Adopted, adopt
from grpo_exp.composition import RunRequest, build_request
from grpo_exp.conclusion import conclude
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.attachment import attached
from grpo_exp.settings import load
from grpo_exp.signals import heed_signals
from grpo_exp.worker import broadcast_from_main, run_worker


def run_joined(words: Sequence[str], *, world_size: int) -> int:
    """Run on this process and return its exit code. 85 cannot reach the shell: the launcher loses it.

    Args:
        words: What was typed after the command.
        world_size: Processes that the launcher started.
    """
    if rank() != 0:
        return follow()
    try:
        request = _compose(words, world_size)
    except ConfigError:
        broadcast_from_main((int(ExitCode.WRONG_CONFIG), None))
        raise
    return lead(request, build_console())


def rank() -> int:
    """Return the number of this process among all of the run's; 0 is the main one."""
    return int(os.environ.get("RANK", "0"))


def follow() -> int:
    """Work as a process that is not the main one: wait for the run's folder, work there, and return the exit code."""
    code, folder = broadcast_from_main(None)
    if folder is not None:
        directory = RunDirectory(Path(folder))
        with _quiet(directory, rank()), heed_signals(directory):
            run_worker(directory)
    return code


def lead(request: RunRequest, console: Console) -> int:
    """Do the work of the main process: own the run, hand its folder to the others, train, and return the exit code.

    Raises:
        ConfigError: The run cannot be started; the others have been told.
    """
    try:
        _check_gpus(request)
        adopted = adopt(request, console)
    except ConfigError:
        broadcast_from_main((int(ExitCode.WRONG_CONFIG), None))
        raise
    if isinstance(adopted, int):
        broadcast_from_main((adopted, None))
        return adopted
    with adopted.owned():
        _lead_owned(adopted, console)
    return conclude(adopted.directory, adopted.settings, console)


def _check_gpus(request: RunRequest) -> None:
    """Refuse to share out GPUs that the launcher has shared out already.

    Raises:
        ConfigError: The run wants some of them for a server.
    """
    vllm = request.settings.vllm
    if vllm.mode == "server" and vllm.num_gpus is not None:
        raise ConfigError(
            f"vllm.num_gpus={vllm.num_gpus}: accelerate launch has given the GPUs to its processes already; start the "
            "server with grpo-exp serve on others, or the run with python -m grpo_exp.train"
        )


def _lead_owned(adopted: Adopted, console: Console) -> None:
    """Wait for the run's vLLM server, where it has one, and train together with the other processes."""

    def tell(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(attached(adopted.directory, adopted.settings, tell=tell))
        except RunError as error:
            tell(str(error))
            adopted.end(str(error))
            broadcast_from_main((int(ExitCode.FAILED), None))
            return
        except BaseException:
            broadcast_from_main((int(ExitCode.FAILED), None))
            raise
        assert server.gpus is None  # refused above
        broadcast_from_main((int(ExitCode.COMPLETED), str(adopted.directory.path)))
        _run_shown(adopted)


def _compose(words: Sequence[str], world_size: int) -> RunRequest:
    overrides = [word for word in words if not word.startswith("--")]
    if len(overrides) < len(words):
        raise ConfigError(
            f"{' '.join(w for w in words if w.startswith('--'))}: switches are not read inside accelerate "
            "launch; give GROUP=OPTION and key=value only"
        )
    if not any(word.partition("=")[0] == "launch.num_processes" for word in overrides):
        overrides = [*overrides, f"launch.num_processes={world_size}"]
    request = build_request(load.compose(overrides), overrides)
    if request.settings.launch.num_processes != world_size:
        raise ConfigError(
            f"launch.num_processes={request.settings.launch.num_processes}: accelerate launch started "
            f"{world_size} process(es); use launch.num_processes={world_size}, or leave it out"
        )
    return request


def _run_shown(adopted: Adopted) -> None:
    """Run the main process's worker, and show how all of them get on."""
    directory = adopted.directory
    # One Ctrl-C arrives twice: from the terminal, and from the launcher, which ends its workers 30 s later. So a second
    # one means nothing here, nor on the other processes.
    with (
        os.fdopen(os.dup(1), "w") as screen,
        adopted.shown(build_console(screen)) as live,
        _quiet(directory, 0),
        heed_signals(directory) as requests,
        live.refreshed_beside(lambda: requests.tell_once(live.message, "stopping after this step")),
    ):
        run_worker(directory)


@contextlib.contextmanager
def _quiet(directory: RunDirectory, rank: int) -> Iterator[None]:
    """Let what libraries print go into a log of this process."""
    sys.stdout.flush()
    log = directory.attempt_logs / f"worker-{rank}.log"
    saved = os.dup(1), os.dup(2)
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, before in zip((1, 2), saved, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(descriptor)
