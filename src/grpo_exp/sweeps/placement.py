"""Where the runs of a sweep lie, and what of them names the sweep: the one place that knows."""

from __future__ import annotations

import re
from pathlib import Path

from grpo_exp.errors import ConfigError
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.mlflow_tracker import default_tracking_uri

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_folder(folder: Path) -> None:
    """Refuse a folder whose name cannot be the name of the sweep.

    Raises:
        ConfigError: The last part of the path is no plain name.
    """
    if not _NAME.fullmatch(folder.name):
        raise ConfigError(
            f"hydra.sweep.dir={folder}: its last part is the sweep's name, and {folder.name!r} is not plain; use "
            "letters, digits, dots, dashes and underscores"
        )


def place(settings: RunSettings, folder: Path) -> RunSettings:
    """Return settings whose run lies in a sweep's folder, and still shares the tracker's database of `output_dir`.

    Args:
        settings: With absolute paths.
        folder: The sweep's folder, absolute.
    """
    tracker = settings.tracker
    if tracker.mlflow is not None and tracker.mlflow.tracking_uri is None:
        uri = default_tracking_uri(Path(settings.output_dir))
        tracker = tracker.model_copy(update={"mlflow": tracker.mlflow.model_copy(update={"tracking_uri": uri})})
    if tracker.group is None:
        tracker = tracker.model_copy(update={"group": folder.name})
    return move(settings.model_copy(update={"tracker": tracker}), folder)


def move(settings: RunSettings, folder: Path) -> RunSettings:
    """Return settings whose run lies in this folder: a sweep may have been moved after it was planned."""
    return settings.model_copy(update={"output_dir": str(folder.parent), "name": folder.name})
