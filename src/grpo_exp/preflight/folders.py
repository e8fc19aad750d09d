"""Whether what a run writes can be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from grpo_exp import paths
from grpo_exp.settings.run import RunSettings


def folder_faults(settings: RunSettings) -> list[str]:
    """Return a message for each folder that cannot be written: the output, and the cache of primed models."""
    faults = []
    why = why_not_writable(Path(settings.output_dir))
    if why is not None:
        faults.append(f"output_dir={settings.output_dir}: {why}; choose another folder with output_dir=FOLDER")
    cache = paths.cache_dir()
    why = why_not_writable(cache) if settings.model.kind == "tiny" and not _has_primed_models(cache) else None
    if why is not None:
        faults.append(
            f"GRPO_EXP_CACHE={cache}: {why}, and the built-in policy is kept there; set GRPO_EXP_CACHE to a folder "
            "that can be written"
        )
    return faults


def why_not_writable(folder: Path) -> str | None:
    """Say why nothing could be written into a folder that may not exist yet, or return None.

    Tries it: permission bits say nothing to root, on a full disk or below /proc.
    """
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    except OSError as error:
        return f"cannot be a folder ({error.strerror})"
    if not existing.is_dir():
        return f"{existing} is not a folder"
    try:
        Path(tempfile.mkdtemp(prefix=".grpo_exp-", dir=existing)).rmdir()
    except OSError as error:
        return f"{existing} cannot be written ({error.strerror or os.strerror(error.errno or 0)})"
    return None


def _has_primed_models(cache: Path) -> bool:
    """Say whether somebody filled the cache: one that many share is often read-only."""
    return cache.is_dir() and any(cache.glob("tiny-*"))
