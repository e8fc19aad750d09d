"""Whom the programs belong to: where we are root, a user of their own, since the kernel does not count root's."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

#: User ids that no system gives away: the top of the range below 2**31.
_FREE_USER_IDS = (2_147_000_000, 400_000)


def own_user() -> int | None:
    """Return a user id that no other program has, or None where the kernel counts the processes of ours."""
    if not _is_counted_as_root():
        return None
    first, count = _FREE_USER_IDS
    return first + secrets.randbelow(count)


def _is_counted_as_root() -> bool:
    """Tell whether the kernel takes us for its own root, whose processes it does not count."""
    if os.geteuid() != 0:
        return False
    inside, outside, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    return (inside, outside) == (0, 0) and count > sum(_FREE_USER_IDS)
