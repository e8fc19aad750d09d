"""What is said about a run that has ended, and the result of one whose workers could not write it themselves."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console

from grpo_exp.checkpoints.continuation import can_go_on, store_of
from grpo_exp.errors import ExitCode, exit_code_of_stop
from grpo_exp.reporting.live import event_text, finding_text, is_alert, is_finding
from grpo_exp.reporting.summary import print_summary
from grpo_exp.rundir import RunDirectory, read_events
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.build import open_commands
from grpo_exp.tracking.metrics_log import read_metrics


def conclude(directory: RunDirectory, settings: RunSettings, console: Console) -> int:
    """Print the end of a run's newest attempt and return its exit code."""
    result = directory.read_result()
    if not directory.path.is_dir():
        text = f"{directory.path}: the run's folder is gone, and with it all that was measured"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        return int(ExitCode.FAILED)
    if result is None:  # taken over while its front end was suspended, and going on elsewhere
        text = f"{directory.path}: another process has taken over this run; look at it with grpo-exp show"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        return int(ExitCode.FAILED)
    print_summary(
        result,
        console,
        run_directory=directory.path,
        plot_path=directory.curves if directory.curves.exists() else None,
        open_commands=open_commands(settings, directory),
    )
    for line in _told(directory):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if result["resumable"] and result["status"] != "completed":
        console.print(how_to_go_on(directory), soft_wrap=True, highlight=False, markup=False)
    if result["status"] == "failed":
        console.print(f"log      {directory.worker_log}", soft_wrap=True, highlight=False, markup=False)
    return int(result["exit_code"])


def _told(directory: RunDirectory) -> list[str]:
    """Return a line for each finding that was told while the run went on, and for each trouble besides."""
    events = read_events(directory, attempt=directory.attempt)
    findings = [finding_text(event) for event in events if is_alert(event)]
    if findings:
        findings.append(f"advice   what to try stands in {directory.events}")
    kinds = {"warning", "critical", "tracker"}
    troubles = [event for event in events if event["kind"] in kinds and not is_finding(event)]
    return findings + [event_text(event, event["kind"]) for event in troubles]


def how_to_go_on(directory: RunDirectory) -> str:
    """Say what the same command does next with a run that has ended before its end."""
    step = store_of(directory).newest_step()
    where = "begins with the first step" if step is None else f"goes on from checkpoint-{step}"
    return f"go on   the same command {where}"


def steps_done(directory: RunDirectory) -> int:
    """Return the last step that the newest attempt has measured, 0 before the first."""
    records = read_metrics(directory.metrics) if directory.metrics.exists() else []
    return max((record["step"] for record in records), default=0)


def lost_result(directory: RunDirectory, *, reason: str | None, seconds: float) -> dict[str, Any]:
    """Return the result of a run whose workers ended without writing one.

    Args:
        directory: The run.
        reason: Why they did not; None where nobody knows: killed, or out of memory.
        seconds: Time since the attempt began.
    """
    stopped, steps = directory.stop_file.exists(), steps_done(directory)
    if reason is None:
        reason = "ended before the workers could write a result" if stopped else _last_error_line(directory)
    if stopped:
        resumable = can_go_on(directory, steps=steps)
        code = exit_code_of_stop(resumable=resumable)
    else:
        resumable, code = store_of(directory).newest_step() is not None, ExitCode.FAILED
    return {"status": "stopped" if stopped else "failed", "resumable": resumable, "reason": reason,
            "exit_code": int(code), "steps": steps, "eval": {}, "wall_seconds": seconds}  # fmt: skip


def _last_error_line(directory: RunDirectory) -> str:
    """Return the last line of the workers' logs that looks like an error, or say that there is none."""
    texts = [path.read_text(errors="replace") for path in sorted(directory.attempt_logs.glob("worker*.log"))]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    errors = [line for line in lines if "Error" in line.partition(":")[0] and not line.startswith("raise ")]
    killed = re.search(r"died with <Signals\.(\w+)", errors[-1]) if errors else None
    if killed is not None:
        return f"a worker was ended by {killed.group(1)}: out of memory, or killed by somebody"
    return errors[-1] if errors else "the workers ended without an error message: killed, or out of memory?"
