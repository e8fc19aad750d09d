"""Read `result.json`, and say so where it is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grpo_exp.errors import ConfigError

#: What every result holds.
_KEYS = {"status", "exit_code", "reason", "steps"}


def read(path: Path) -> dict[str, Any]:
    """Return how a run ended.

    Args:
        path: The file, which exists.

    Raises:
        ConfigError: It holds no result.
    """
    try:
        result = json.loads(path.read_text())
    except ValueError:
        result = None
    if not isinstance(result, dict) or not result.keys() >= _KEYS:
        raise ConfigError(
            f"{path}: holds no result, though it is written as a whole: something else has changed it; remove it, and "
            "the run goes on from its last checkpoint"
        )
    return result
