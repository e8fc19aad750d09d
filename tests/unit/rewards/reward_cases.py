"""Case files and process lists for the reward tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[3]


def load_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def load_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file; `completion_py` becomes the completion that it builds."""
    cases = load_jsonl(CHECKOUT / "tests" / "cases" / name)
    for case in cases:
        if "completion_py" in case:
            case["completion"] = eval(case["completion_py"], {"__builtins__": {}})
    return cases


def descendants() -> set[int]:
    """Return the ids of the processes below this one, zombies included."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while True:
        more = {process for process, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def is_running(process: int) -> bool:
    """Tell whether a process exists and is more than an entry that its new parent has yet to collect."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
