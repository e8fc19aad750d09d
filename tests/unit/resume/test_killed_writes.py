"""A kill at any moment of a checkpoint's writing leaves the one before, or the whole new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def test_kill_before_any_file_operation_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    """Checkpoint 4 is there and 6 is being written; only the newest one is kept, so that 4 is deleted at the end."""
    script = TESTS / "unit" / "resume" / "killed_writes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": PATHS},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    newest = [row["newest"] for row in rows]
    # At least: 4 files opened, read, brought to the disk and the manifest; then the rename, and 4 is deleted.
    assert len(rows) > 20
    assert set(newest) == {4, 6}
    assert newest == sorted(newest)  # once it is in its place it stays there
    assert newest.count(4) > 15
    assert newest.count(6) > 5  # killed while 4 was being deleted
    for row in rows:  # the next one is written all the same, and nothing half is left for ever
        assert row["left"] == ["checkpoint-8"], row
