"""Where huggingface_hub keeps copies on this machine, and which commit a name stood for when it was fetched last.

Read here without that library, which takes a third of a second to import, and without a network.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

COMMIT = re.compile(r"[0-9a-f]{40}")


def cached_commit(kind: Literal["models", "datasets"], hub_id: str, revision: str | None) -> str | None:
    """Return the commit that a revision meant when it was fetched last, or None where it never was.

    Args:
        kind: Of repository.
        hub_id: Its name.
        revision: Branch, tag or commit; None is the newest.
    """
    folder, name = _repository(kind, hub_id), revision or "main"
    if COMMIT.fullmatch(name):
        return name if (folder / "snapshots" / name).is_dir() else None
    try:
        commit = (folder / "refs" / name).read_text().strip()
    except OSError:
        return None
    return commit if COMMIT.fullmatch(commit) else None


def cached_snapshot(kind: Literal["models", "datasets"], hub_id: str, revision: str | None) -> Path | None:
    """Return the folder with the files of a revision, or None where there is none here."""
    commit = cached_commit(kind, hub_id, revision)
    return None if commit is None else _repository(kind, hub_id) / "snapshots" / commit


def _repository(kind: str, hub_id: str) -> Path:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    return cache / f"{kind}--{hub_id.replace('/', '--')}"
