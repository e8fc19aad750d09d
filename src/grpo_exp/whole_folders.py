"""Folders of a shared cache that are there whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def build_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write files into; it becomes `folder` when the block ends without an error.

    Of several builders at once the first one wins; what the others made is the same and is dropped.

    Raises:
        OSError: It cannot be written, and no other builder was first.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield partial
        for path in (partial, *partial.iterdir()):  # made private; a cache may be shared
            path.chmod(0o755 if path.is_dir() else 0o644)
        if not folder.is_dir():
            partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
