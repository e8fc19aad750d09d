"""The files of the checkout, as git sees them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / "src" / "grpo_exp"


@cache
def project_files() -> list[Path]:
    """Return all files that are tracked, or new and not ignored; without git, those that a checkout has."""
    command = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        parts = ("src", "conf", "sweeps", "slurm", "tests", "docs", "benchmarks")
        found = [path for part in parts for path in (CHECKOUT / part).rglob("*") if "__pycache__" not in path.parts]
        return sorted(path for path in [*found, *CHECKOUT.glob("*")] if path.is_file())
    files = [CHECKOUT / name for name in done.stdout.split("\0") if name]
    return sorted(path for path in files if path.is_file())


def source_files() -> list[Path]:
    """Return the modules of the package."""
    return sorted(SOURCE.rglob("*.py"))
