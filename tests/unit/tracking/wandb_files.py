"""Offline runs of W&B, read back with its own reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def read(directory: Path) -> list[list[dict[str, Any]]]:
    """Return the records of every W&B folder below a run directory, oldest first."""
    logs = sorted(directory.glob("wandb/offline-run-*/*.wandb"))
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json"]
    outputs = [subprocess.run([*command, str(log)], capture_output=True, text=True, check=True).stdout for log in logs]
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def history(records: list[dict[str, Any]]) -> list[dict[str, float]]:
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [{key: value for key, value in item.items() if not key.startswith("_")} for item in items]
