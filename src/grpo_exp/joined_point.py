"""One run of a sweep inside processes on several nodes: `accelerate launch ... -m grpo_exp.joined_point SWEEP INDEX`.

The launcher loses exit codes, so the main process writes the run's into `--code-file` and every process ends with 0
once it is known.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from grpo_exp.composition import RunRequest
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.joined import follow, lead, rank
from grpo_exp.point_run import Terms, run_point
from grpo_exp.rundir import write_text
from grpo_exp.sweeps.manifest import SweepDirectory
from grpo_exp.worker import broadcast_from_main


def main(words: Sequence[str]) -> None:
    """Do the work of this process, and on the main one write down how the run ended."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("index", type=int)
    parser.add_argument("--code-file", type=Path, required=True)
    parser.add_argument("--wait", type=float, default=0.0)
    given = parser.parse_args(words)
    if rank() != 0:
        follow()
        return
    console = build_console()
    try:
        terms = Terms(wait_seconds=given.wait)
        code = run_leading(SweepDirectory(given.sweep.resolve()), given.index, terms, console)
    except ConfigError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        code = ExitCode.WRONG_CONFIG
    write_text(given.code_file, f"{int(code)}\n")


def run_leading(sweep: SweepDirectory, index: int, terms: Terms, console: Console) -> int:
    """Run a point as the main process of several and return its exit code, whatever becomes of it telling the others.

    Raises:
        ConfigError: It cannot be run.
    """
    told = False

    def start(request: RunRequest, console: Console) -> int:
        nonlocal told
        told = True
        return lead(request, console)

    try:
        code = run_point(sweep, index, terms, console, start=start)
    except BaseException:
        if not told:
            broadcast_from_main((int(ExitCode.FAILED), None))
        raise
    if not told:
        broadcast_from_main((int(code), None))
    return int(code)


if __name__ == "__main__":
    main(sys.argv[1:])
