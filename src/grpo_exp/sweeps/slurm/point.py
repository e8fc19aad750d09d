"""What a batch script asks about its run: `python -m grpo_exp.sweeps.slurm.point SWEEP INDEX QUESTION`.

Questions: `run-directory` and `model` print it; `cancelled` answers with its exit code, 0 for yes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.sweeps.manifest import Entry, SweepDirectory


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
        case "model":
            print(served_model(sweep, entry))
        case "cancelled":
            return ExitCode.COMPLETED if entry.run_directory in sweep.read_cancelled() else ExitCode.FAILED
        case question:
            raise ConfigError(f"{question}: is no question; ask for run-directory, model or cancelled")
    return ExitCode.COMPLETED


def served_model(sweep: SweepDirectory, entry: Entry) -> str:
    """Return what vLLM is to load for a run.

    Raises:
        ConfigError: The run's model has no files that vLLM could load.
    """
    model = sweep.read_settings(entry)["model"]
    path = model.get("path")
    if not path:
        raise ConfigError(
            f"model.kind={model['kind']}: has no files for vLLM to load; use model=local model.path=FOLDER, or "
            "hydra.launcher.server_nodes=0"
        )
    return str(path)


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1:])))
