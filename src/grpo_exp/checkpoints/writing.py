"""Write a checkpoint so that it appears whole or not at all: aside, to the disk, renamed. On the main process only."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from grpo_exp.checkpoints.choice import is_of_run
from grpo_exp.checkpoints.manifest import fsync, seal
from grpo_exp.checkpoints.rotation import surplus
from grpo_exp.checkpoints.store import CheckpointStore
from grpo_exp.errors import RunError
from grpo_exp.settings.checkpoint import CheckpointSettings

#: Two checkpoints of one run differ by a buffered batch and the length of some texts.
_SPARE = 1.05


class CheckpointWriter:
    """Begins and finishes checkpoints of one run; between the two, all processes write their files.

    Args:
        store: The checkpoints of the run.
        settings: What is kept.
    """

    def __init__(self, store: CheckpointStore, settings: CheckpointSettings) -> None:
        self._store = store
        self._settings = settings

    def begin(self, estimate_bytes: int) -> None:
        """Make an empty place to write to, on a disk with enough room.

        Args:
            estimate_bytes: What the checkpoint will take, where there is none yet to measure.

        Raises:
            RunError: The room does not suffice.
        """
        self._store.folder.mkdir(parents=True, exist_ok=True)
        self._store.clear_partial()
        self._check_room(estimate_bytes)
        self._store.partial.mkdir()

    def finish(self, step: int, facts: Mapping[str, Any]) -> None:
        """Put the checkpoint in its place, when all processes have written their files, and delete what is surplus."""
        written, target = self._store.partial / f"checkpoint-{step}", self._store.path_of(step)
        seal(written, step=step, facts=facts)
        if target.exists():  # of workers that outlived their front end: the run has been started again since
            target.rename(self._store.partial / f"replaced-{step}")
        written.rename(target)
        fsync(self._store.folder)
        mine = [found for found in self._store.complete() if is_of_run(found, facts)]
        self._store.delete(surplus(mine, self._settings))

    def abandon(self, step: int, error: Exception) -> RunError:
        """Give the room of an unfinished checkpoint back, and return what is to be said."""
        shutil.rmtree(self._store.partial, ignore_errors=True)  # what it cannot delete, the next one's `begin` tells of
        if isinstance(error, RunError):
            return error
        return RunError(
            f"{self._store.folder}: checkpoint-{step} could not be written ({type(error).__name__}: {error}); "
            f"{self._what_stays()}; make room or mend the folder, then start the same command again"
        )

    def _what_stays(self) -> str:
        step = self._store.newest_step()
        return "there is none before it" if step is None else f"checkpoint-{step} is complete and stays"

    def _check_room(self, estimate_bytes: int) -> None:
        newest = next(iter(self._store.complete()), None)
        needed = int(_SPARE * (estimate_bytes if newest is None else newest.manifest.size_bytes))
        free = shutil.disk_usage(self._store.folder).free
        if free < needed:
            raise RunError(
                f"{self._store.folder}: {_megabytes(free)} are free and a checkpoint takes about {_megabytes(needed)}, "
                f"besides those that are there; {self._what_stays()}; make room, or lower trainer.checkpoint.keep, "
                "then start the same command again"
            )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
