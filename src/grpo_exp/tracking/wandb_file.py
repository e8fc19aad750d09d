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
_NUM_LAST = 20


def is_whole(path: Path) -> bool:
    """Say whether the file holds the record that W&B writes when a run ends, and no record is cut."""
    # The messages are made when W&B's module is loaded, so pyright does not see them.
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    if not path.exists():
        return False
    records = list(_records(path.read_bytes()))
    # The end comes last but for what W&B adds about itself.
    kinds = [Record.FromString(record).WhichOneof("record_type") for record in records[-_NUM_LAST:] if record]
    return all(records) and "exit" in kinds


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
