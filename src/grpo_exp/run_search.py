"""Find the run that somebody means: its folder, or a folder above it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory

#: `outputs/sweeps/NAME/POINT/NAME/RUN` and a level to spare.
_MAX_DEPTH = 6
_MOST_LISTED = 10


def find_run(path: Path) -> RunDirectory:
    """Return the run in a folder, or the only one below it.

    Raises:
        ConfigError: There is none, or there are several.
    """
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such folder; give the folder of a run, or one that holds a run")
    # Not resolved: what is printed are the words that were typed.
    found = sorted(_runs_in(path, _MAX_DEPTH), key=_age)
    if len(found) == 1:
        return RunDirectory(found[0].resolve())
    if not found:
        raise ConfigError(f"{path}: holds no run; give the folder of a run, or one that holds a run")
    listed = [f"  {run}" for run in found[:_MOST_LISTED]]
    more = [f"  and {len(found) - _MOST_LISTED} older ones"] if len(found) > _MOST_LISTED else []
    raise ConfigError("\n".join([f"{path}: holds {len(found)} runs; give one of them, newest first:", *listed, *more]))


def _runs_in(path: Path, depth: int) -> Iterator[Path]:
    """Yield run folders. A saved model has a config.json, too, and so has each old attempt; only runs have logs."""
    if (path / "config.json").is_file() and (path / "logs").is_dir():
        yield path
        return
    if depth == 0:
        return
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _runs_in(path / entry.name, depth - 1)


def _age(path: Path) -> float:
    return -(path / "config.json").stat().st_mtime
