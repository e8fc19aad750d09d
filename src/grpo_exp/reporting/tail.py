"""The end of a file of lines that another process writes, perhaps on another machine."""

from __future__ import annotations

import os
from pathlib import Path


class Tail:
    """Reads whole lines as they are added.

    Args:
        path: The file; it need not exist yet.
        from_start: Whether to begin with what stands in it now.
        offset: Bytes of it that have been read before.
    """

    def __init__(self, path: Path, *, from_start: bool = True, offset: int = 0) -> None:
        #: Whether the last `read` began at the start again, since the file was cut back or replaced.
        self.restarted = False
        self._path = path
        self._file: int | None = None
        self._offset = 0
        if not from_start:
            self.read()
        elif offset:
            self._file, self._offset = path.stat().st_ino, offset

    def read(self) -> list[bytes]:
        """Return the lines that were added since the last call.

        Of a file that was cut back, or replaced by another one, these are all its lines: some of them may have been
        read before.
        """
        self.restarted = False
        try:
            with self._path.open("rb") as file:
                number, size = os.fstat(file.fileno()).st_ino, file.seek(0, 2)
                if number != self._file or size < self._offset:
                    self.restarted = self._file is not None
                    self._file, self._offset = number, 0
                file.seek(self._offset)
                block = file.read(size - self._offset)
        except FileNotFoundError:
            return []
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
