"""`complete.json`: what a checkpoint consists of. It is written last, so a checkpoint without it was being written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.errors import RunError

MANIFEST = "complete.json"
#: Larger files are compared by size: weights of many GB would be read once more at every save and every start, and what
#: a kill or a full disk leaves is too short, which the size tells.
DIGEST_LIMIT_BYTES = 256 * 2**20
_FORMAT = 1
_BLOCK_BYTES = 2**20


class BrokenCheckpointError(RunError):
    """A checkpoint that cannot be gone on from; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of `complete.json`."""

    step: int
    """Optimizer steps that were done."""
    facts: Mapping[str, Any]
    """What the run wrote beside the tensors; see `facts.CheckpointFacts`."""
    files: Mapping[str, Mapping[str, Any]]
    """Path below the checkpoint -> `size` in bytes, and `sha256` in hex or null for a large file."""

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(mark["size"] for mark in self.files.values())


def seal(folder: Path, *, step: int, facts: Mapping[str, Any]) -> Manifest:
    """Bring all files of a checkpoint to the disk, then write its manifest, and return it.

    Args:
        folder: The checkpoint; all that is in it belongs to it.
        step: Optimizer steps that were done.
        facts: JSON data to keep with it.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): _mark(path) for path in paths}
    for path in [*paths, *(path for path in folder.rglob("*") if path.is_dir())]:
        fsync(path)
    manifest = Manifest(step, facts, files)
    text = json.dumps({"format": _FORMAT, "step": step, "facts": facts, "files": files}, indent=1)
    with (folder / MANIFEST).open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    fsync(folder)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Read what a checkpoint consists of, without looking at the files.

    Raises:
        BrokenCheckpointError: There is no manifest, or it cannot be read.
    """
    try:
        data = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise BrokenCheckpointError(f"has no {MANIFEST}, so it was never complete") from None
    except ValueError as error:
        raise BrokenCheckpointError(f"{MANIFEST} cannot be read ({error})") from error
    try:
        if data["format"] != _FORMAT:
            raise BrokenCheckpointError(f"{MANIFEST} has format {data['format']}, and this version reads {_FORMAT}")
        return Manifest(data["step"], data["facts"], data["files"])
    except (KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"{MANIFEST} is no manifest (lacks {error})") from error


def check_files(folder: Path, manifest: Manifest, *, digests: bool = True) -> None:
    """Compare the files of a checkpoint with its manifest.

    Args:
        folder: The checkpoint.
        manifest: What was written into it.
        digests: Compare contents, too, of files up to DIGEST_LIMIT_BYTES.

    Raises:
        BrokenCheckpointError: A file is missing, or is not the one that was written.
    """
    for name, mark in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BrokenCheckpointError(f"{name} is missing")
        if (size := path.stat().st_size) != mark["size"]:
            raise BrokenCheckpointError(f"{name} holds {size} bytes and {mark['size']} were written")
        if digests and mark["sha256"] is not None and _digest(path) != mark["sha256"]:
            raise BrokenCheckpointError(f"{name} has changed since it was written")


def fsync(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mark(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"size": size, "sha256": _digest(path) if size <= DIGEST_LIMIT_BYTES else None}


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()
