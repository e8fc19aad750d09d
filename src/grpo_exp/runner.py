"""From a request to a finished run: adopt it, let workers do it, show it, conclude."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from rich.console import Console

from grpo_exp.adoption import Adopted, adopt
from grpo_exp.composition import RunRequest
from grpo_exp.conclusion import conclude
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.hanging import hung_reason, note_server_health
from grpo_exp.launching import WorkerGroup
from grpo_exp.reporting.live import LiveRun
from grpo_exp.serving.attachment import Attachment, attached
from grpo_exp.signals import Requests, heed_signals
from grpo_exp.worker import run_worker

_POLL_SECONDS = 0.2


def run(request: RunRequest, console: Console, *, is_first: bool = False) -> int:
    """Run to the end and return the exit code.

    Args:
        request: The run.
        console: Where to show it.
        is_first: Another run follows in the same command: 85 where a request to stop came when this one had just made
            its last step and evaluation, so that nothing was left here to be stopped.

    Raises:
        ConfigError: Something is wrong with the settings, or the run is somebody else's just now.
    """
    nodes = request.settings.launch.num_nodes
    if nodes > 1:
        raise ConfigError(
            f"launch.num_nodes={nodes}: this starts the processes of one machine; use hydra/launcher=slurm "
            f"hydra.launcher.nodes={nodes}, or launch.num_nodes=1"
        )
    adopted = adopt(request, console)
    if isinstance(adopted, int):
        return adopted
    directory, settings = adopted.directory, adopted.settings
    with adopted.owned():
        work(adopted, console)
        came_late = directory.stop_file.exists()  # taken away at the end of the block
    code = conclude(directory, settings, console)
    return int(ExitCode.RESUMABLE) if is_first and came_late and code == ExitCode.COMPLETED else code


def work(adopted: Adopted, console: Console) -> None:
    """Run the workers to their end, in place or launched, and show how they get on."""
    with adopted.shown(console) as live:
        if adopted.settings.launch.kind == "inline":
            _work_inline(adopted, live, console)
        else:
            _work_launched(adopted, live)


def _work_launched(adopted: Adopted, live: LiveRun) -> None:
    with heed_signals(adopted.directory) as requests, _server_of(adopted, live, requests) as server:
        if server is None:
            return
        workers = WorkerGroup(adopted.settings.launch, adopted.directory, gpus=server.gpus)
        try:
            while workers.poll() is None and requests.count < 2:
                requests.tell_once(live.message)
                live.refresh()
                reason = _why_lost(adopted, server)
                if reason is not None:
                    workers.kill()
                    adopted.end(reason)
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            workers.kill()


def _why_lost(adopted: Adopted, server: Attachment) -> str | None:
    """Return why the workers must be ended from here, or None."""
    reason = hung_reason(adopted.directory)
    if reason is not None:
        note_server_health(adopted.directory, adopted.settings)
        return reason
    return server.why_ended()


@contextlib.contextmanager
def _server_of(adopted: Adopted, live: LiveRun, requests: Requests) -> Iterator[Attachment | None]:
    """Have the run's vLLM server inside; None where the run has ended without it, and why stands in its result."""

    def why_over() -> str | None:
        requests.tell_once(live.message)
        live.refresh()
        return "stopped on request, while its vLLM server was starting" if requests.count else None

    with contextlib.ExitStack() as stack:
        try:
            context = attached(adopted.directory, adopted.settings, tell=live.message, why_over=why_over)
            server = stack.enter_context(context)
        except RunError as error:
            live.message(str(error))
            adopted.end(str(error))
            server = None
        yield server


def _work_inline(adopted: Adopted, live: LiveRun, console: Console) -> None:
    """Run the worker in place; what libraries print goes into its log, as with a process of its own."""

    def end_at_once() -> None:
        # The main thread is anywhere in the worker, so nothing but the end of the process is sure to end it.
        try:
            adopted.end("ended at once on request")
            live.message("ended at once")
            console.show_cursor(True)
        finally:
            os._exit(ExitCode.FAILED)

    with (
        heed_signals(adopted.directory, at_second=end_at_once) as requests,
        _server_of(adopted, live, requests) as server,
        live.refreshed_beside(lambda: requests.tell_once(live.message)),
    ):
        if server is None:
            return
        try:
            with (
                adopted.directory.worker_log.open("a") as log,
                contextlib.redirect_stdout(log),
                contextlib.redirect_stderr(log),
            ):
                run_worker(adopted.directory)
        except Exception as error:
            live.message(f"{type(error).__name__}: {error}")  # result.json says so, too
