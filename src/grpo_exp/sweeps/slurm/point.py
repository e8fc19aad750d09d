"""What a batch script asks about its run: `python -m grpo_exp.sweeps.slurm.point SWEEP INDEX QUESTION`.

Questions: `run-directory` prints it; `cancelled` answers with its exit code, 0 for yes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.sweeps.manifest import SweepDirectory


def main(words: Sequence[str]) -> int:
    """Answer one question and return the exit code."""
    try:
        return _answer(words)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return ExitCode.WRONG_CONFIG


def _answer(words: Sequence[str]) -> int:
    if len(words) != 3 or not words[1].isdecimal():
        raise ConfigError(f"{' '.join(words)}: SWEEP INDEX QUESTION are wanted, INDEX a number")
    sweep = SweepDirectory(Path(words[0]).resolve())
    entry = sweep.read_entry(int(words[1]))
    match words[2]:
        case "run-directory":
            print(sweep.run(entry).path)
        case "cancelled":
            return ExitCode.COMPLETED if entry.run_directory in sweep.read_cancelled() else ExitCode.FAILED
        case question:
            raise ConfigError(f"{question}: is no question; ask for run-directory or cancelled")
    return ExitCode.COMPLETED


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1:])))
