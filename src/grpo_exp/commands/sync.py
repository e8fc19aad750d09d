"""Send to the trackers what they lack: `grpo-exp sync RUN_FOLDER... [tracker=OPTION ...]`.

Sends what came while a tracker was down, or all of a run from a node without a network. Repeat it as you like: what is
there already is not sent again. With `tracker=...` words, as for training, the runs go to those trackers instead of
their own: `grpo-exp sync outputs/*/* tracker=wandb tracker.wandb.mode=online`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.tracking.build import active_trackers
from grpo_exp.tracking.sync import sync_run

#: Settings as they are typed for training; a folder may begin with the same letters.
_ABOUT_TRACKERS = re.compile(r"\+{0,2}tracker(?:\.[^=/]+)?=|~tracker\.")
_USAGE = "Usage: grpo-exp sync RUN_FOLDER... [tracker=OPTION tracker.KEY=VALUE ...]"


def main(words: Sequence[str]) -> int:
    """Sync each run with each of its trackers, say what was sent, and fail where one could not be reached."""
    overrides = [word for word in words if _ABOUT_TRACKERS.match(word)]
    folders = [word for word in words if word not in overrides]
    if not folders or any(folder.startswith("-") or "=" in folder for folder in folders):
        raise ConfigError(_USAGE)
    trackers = _trackers(overrides)
    directories = [RunDirectory(Path(folder).resolve()) for folder in folders]
    runs = [(directory, load.validate(directory.read_config())) for directory in directories]
    faults = [
        f"{directory.path}: {why}, and what was sent is noted in tracker.json; copy the folder to where you may write"
        for directory in directories
        if (why := why_not_writable(directory.path)) is not None
    ]
    if faults:
        raise ConfigError(faults)
    failed = False
    for directory, settings in runs:
        chosen = settings.tracker if trackers is None else trackers
        if not active_trackers(chosen):
            print(f"{directory.path}: tracks nowhere; say where to send it, for example tracker=mlflow")
        for outcome in sync_run(directory, settings, chosen):
            print(f"{directory.path}: {outcome.tracker}: {outcome.text}", flush=True)
            failed = failed or outcome.state in {"busy", "failed"}
    return ExitCode.FAILED if failed else ExitCode.COMPLETED


def _trackers(overrides: Sequence[str]) -> TrackerSettings | None:
    if not overrides:
        return None
    if not any(word.startswith("tracker=") for word in overrides):
        raise ConfigError(f"{overrides[0]}: says how and not where; add tracker=mlflow, tracker=wandb or both")
    return load.load_group("tracker", TrackerSettings, overrides)
