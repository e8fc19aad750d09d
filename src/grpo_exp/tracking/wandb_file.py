"""Whether W&B's own file of a run is whole. W&B drops what it cannot write, for example on a full disk, without a word.

The file is a LevelDB log: after a header of 7 bytes, blocks of 32 KiB; in them chunks of a checksum (4 bytes), a length
(2 bytes, little endian), a kind (1 byte: whole, first, middle, last) and the data. A chunk header never lies across two
blocks. Source: LevelDB's doc/log_format.md; the data are messages `Record` of W&B's protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_FILE_HEADER_BYTES = 7
_BLOCK_BYTES = 32 * 1024
_CHUNK_HEADER = struct.Struct("<IHB")
_WHOLE, _FIRST, _LAST = 1, 2, 4


def ends_with_exit(path: Path) -> bool:
    """Say whether the last record in the file is the one that W&B writes when a run ends."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    if not path.exists():
        return False
    last = b""
    for record in _records(path.read_bytes()):
        last = record
    return Record.FromString(last).WhichOneof("record_type") == "exit"


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file; one that is cut is yielded empty, and ends it."""
    position, parts = _FILE_HEADER_BYTES, b""
    while position < len(content):
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < _CHUNK_HEADER.size:  # filled up
            position += left
            continue
        header = content[position : position + _CHUNK_HEADER.size]
        if len(header) < _CHUNK_HEADER.size:
            yield b""
            return
        _, length, kind = _CHUNK_HEADER.unpack(header)
        position += _CHUNK_HEADER.size
        data = content[position : position + length]
        position += length
        if kind not in {_WHOLE, _FIRST, _FIRST + 1, _LAST} or len(data) < length:
            yield b""
            return
        parts = data if kind in {_WHOLE, _FIRST} else parts + data
        if kind in {_WHOLE, _LAST}:
            yield parts
            parts = b""
    if parts:
        yield b""
