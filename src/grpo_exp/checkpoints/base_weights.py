"""What the weights in front of a run are: a resumed one reads them again, under its adapter or as its reference."""

from __future__ import annotations

import hashlib
from pathlib import Path

from grpo_exp.settings.model import ModelSettings, location_of

#: Of a large file so many blocks are read, evenly spread: training changes all of its tensors.
_NUM_BLOCKS = 32
_BLOCK_BYTES = 2**20
_NUM_DIGITS = 16


def fingerprint_of(model: ModelSettings) -> str | None:
    """Return 16 hex digits over the files of weights in a model's folder; None for a model that is in none."""
    folder = location_of(model)
    if folder is None or not Path(folder).is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(path for path in Path(folder).iterdir() if path.suffix in {".safetensors", ".bin"}):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as stream:
            for number in range(_NUM_BLOCKS):
                stream.seek(max(number * _BLOCK_BYTES, number * size // _NUM_BLOCKS))
                digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()[:_NUM_DIGITS]
