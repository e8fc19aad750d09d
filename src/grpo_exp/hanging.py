"""What happens to a run that hangs: it is written down why, and its processes end."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import NoReturn

from grpo_exp.conclusion import lost_result
from grpo_exp.errors import ExitCode
from grpo_exp.rundir import RunDirectory, write_json, write_text
from grpo_exp.settings.run import RunSettings
from grpo_exp.watchdog import GRACE_SECONDS

_SERVER_TIMEOUT_SECONDS = 5.0
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
        if settings.vllm.mode == "server":
            address = f"http://{settings.vllm.server_host}:{settings.vllm.server_port}/health"
            write_text(directory.server_health, f"{address}: {server_health(address)}\n")
        result = lost_result(directory, reason=reason, seconds=_seconds_of_attempt(directory))
        write_json(directory.result, {**result, "status": "failed"})
    else:
        time.sleep(2 * GRACE_SECONDS)  # the launcher ends the main process as soon as another one has ended
    print(f"watchdog: {reason}", file=sys.__stderr__, flush=True)
    os._exit(ExitCode.FAILED)


def server_health(address: str) -> str:
    """Return in one line what a server answers within 5 s, or why there is no answer."""
    try:
        with urllib.request.urlopen(address, timeout=_SERVER_TIMEOUT_SECONDS) as answer:
            return f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        return f"no answer ({error})"


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
