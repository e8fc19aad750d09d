"""What happens to a run that hangs: it is written down why, and its processes end."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import NoReturn

from grpo_exp.conclusion import lost_result
from grpo_exp.errors import ExitCode
from grpo_exp.rundir import RunDirectory, write_json, write_text
from grpo_exp.serving.place import placed, server_url
from grpo_exp.serving.readiness import server_health
from grpo_exp.settings.run import RunSettings
from grpo_exp.watchdog import GRACE_SECONDS

#: A process that hangs inside of a library can write its stacks and nothing else; the front end then ends the run,
#: later than the process itself would.
SECOND_LINE_SECONDS = 4 * GRACE_SECONDS


def end_hung(directory: RunDirectory, settings: RunSettings, reason: str, *, rank: int) -> NoReturn:
    """End this process of a run that hangs; the main one writes the result first.

    Nothing is cleaned up: whatever hangs would hang the cleaning, too.

    Args:
        directory: The run.
        settings: Its settings.
        reason: What the watchdog saw.
        rank: Of this process.
    """
    if rank == 0:
        directory.add_event("watchdog", reason)
        note_server_health(directory, settings)
        result = lost_result(directory, reason=reason, seconds=_seconds_of_attempt(directory))
        write_json(directory.result, {**result, "status": "failed", "exit_code": int(ExitCode.FAILED)})
    else:
        time.sleep(2 * GRACE_SECONDS)  # the launcher ends the main process as soon as another one has ended
    print(f"watchdog: {reason}", file=sys.__stderr__, flush=True)
    os._exit(ExitCode.FAILED)


def note_server_health(directory: RunDirectory, settings: RunSettings) -> None:
    """Write down whether the vLLM server of a run that hangs still answers, where there is one."""
    vllm = placed(settings, directory).vllm
    if vllm.mode == "server" and not vllm.is_own:  # it was found, or named
        url = server_url(vllm)
        write_text(directory.server_health, f"{url}/health: {server_health(url)}\n")


def hung_reason(directory: RunDirectory) -> str | None:
    """Return why the front end must end workers that hang and cannot do it themselves, or None.

    They have written their stacks a while ago, and nothing else since.
    """
    times = [path.stat().st_mtime for path in directory.attempt_logs.glob("stacks-*.txt") if path.stat().st_size]
    if not times or time.time() - max(times) < SECOND_LINE_SECONDS:
        return None
    signs = [path.stat().st_mtime for path in (directory.metrics, directory.status) if path.exists()]
    if max(signs, default=0.0) > max(times):
        return None
    return (
        "the workers hang inside of a library, and did not end when the watchdog told them to; what each process was "
        f"doing stands in {directory.attempt_logs}/stacks-*.txt"
    )


def _seconds_of_attempt(directory: RunDirectory) -> float:
    return time.time() - json.loads(directory.provenance.read_text())["time"]
