"""The folder `checkpoints/` of a run: names, what is complete in it, and what is deleted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grpo_exp.checkpoints.manifest import BrokenCheckpointError, Manifest, check_files, read_manifest

#: transformers' name; its tools read such a folder as a model.
_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint with a manifest."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """Optimizer steps that were done."""
        return self.manifest.step


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: `checkpoints/` of the run; need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def partial(self) -> Path:
        """Where a checkpoint is written, and where one goes to be deleted: nothing in it counts."""
        return self.folder / ".partial"

    def path_of(self, step: int) -> Path:
        """Return where the checkpoint of a step lies."""
        return self.folder / f"checkpoint-{step}"

    def steps(self) -> list[int]:
        """Return the steps of all folders that are named as checkpoints, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [_NAME.fullmatch(path.name) for path in self.folder.iterdir() if path.is_dir()]
        return sorted((int(match[1]) for match in found if match is not None), reverse=True)

    def read(self, step: int, *, digests: bool = True) -> Checkpoint:
        """Return the checkpoint of a step.

        Args:
            step: Its number.
            digests: Compare the contents of its files, too, not only their sizes.

        Raises:
            BrokenCheckpointError: It is not complete.
        """
        path = self.path_of(step)
        manifest = read_manifest(path)
        if manifest.step != step:
            raise BrokenCheckpointError(f"was made at step {manifest.step} and renamed")
        check_files(path, manifest, digests=digests)
        return Checkpoint(path, manifest)

    def complete(self) -> list[Checkpoint]:
        """Return those whose files are all there with the right size, the newest first."""
        found = []
        for step in self.steps():
            try:
                found.append(self.read(step, digests=False))
            except BrokenCheckpointError:
                continue
        return found

    def newest_step(self) -> int | None:
        """Return the step of the newest one whose files are all there, or None."""
        return next((checkpoint.step for checkpoint in self.complete()), None)

    def set_aside(self, steps: Iterable[int], *, label: str) -> None:
        """Move checkpoints into a folder beside the others, in which nobody looks for them."""
        target = self.folder / label
        for step in steps:
            target.mkdir(exist_ok=True)
            self.path_of(step).rename(_free_name(target / f"checkpoint-{step}"))

    def delete(self, steps: Iterable[int]) -> None:
        """Delete checkpoints: out of sight first, so that none is ever half there."""
        for step in steps:
            self.partial.mkdir(exist_ok=True)
            self.path_of(step).rename(_free_name(self.partial / f"deleted-{step}"))
        self.clear_partial()

    def clear_partial(self) -> None:
        """Delete what was not finished."""
        if self.partial.is_dir():
            shutil.rmtree(self.partial)


def _free_name(path: Path) -> Path:
    """Return the path, with a number behind it where it is taken."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
