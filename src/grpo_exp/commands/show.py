"""Show how a run stands or ended: `grpo-exp show RUN_FOLDER`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.rundir import RunDirectory
from grpo_exp.runner import conclude
from grpo_exp.settings import load
from grpo_exp.tracking.metrics_log import read_metrics


def main(words: Sequence[str]) -> int:
    """Print the result of a finished run, or the last step of one that goes on."""
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError("Usage: grpo-exp show RUN_FOLDER")
    directory, console = RunDirectory(Path(words[0]).resolve()), build_console()
    settings = load.validate(directory.read_config())
    if directory.read_result() is not None:
        conclude(directory, settings, console)
        return ExitCode.COMPLETED
    records = read_metrics(directory.metrics) if directory.metrics.exists() else []
    step = records[-1]["step"] if records else 0
    owner = "is going on" if directory.lock.exists() else "was left unfinished; start it again to run it anew"
    console.print(f"{directory.path}: {owner}, step {step} of {settings.trainer.max_steps}", soft_wrap=True)
    return ExitCode.COMPLETED
