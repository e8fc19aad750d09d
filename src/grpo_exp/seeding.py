"""Seeds that belong to one run: made of the run's seed and of what they are for.

Seeds that are added up, as `seed + rank` in TRL, meet each other: seed 0 on rank 1 would sample as seed 1 on rank 0.
"""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """Return 32 bits (numpy takes no more) that depend on every part."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
