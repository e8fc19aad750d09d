"""Wait until the vLLM server of a batch job answers, and make sure that it is the right one for its run.

`python -m grpo_exp.sweeps.slurm.wait_for_server SWEEP INDEX --url=http://HOST:PORT --timeout-seconds=N`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.serving.readiness import wait_for_server, wanted_of
from grpo_exp.sweeps.manifest import SweepDirectory, settings_of


def main(words: Sequence[str]) -> int:
    """Wait as the words say and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("index", type=int)
    parser.add_argument("--url", required=True)
    parser.add_argument("--timeout-seconds", type=float, required=True)
    given = parser.parse_args(words)
    sweep = SweepDirectory(given.sweep.resolve())
    try:
        wanted = wanted_of(settings_of(sweep.read_settings(sweep.read_entry(given.index))))
        wait_for_server(
            given.url, wanted, timeout_seconds=given.timeout_seconds, tell=lambda text: print(text, flush=True)
        )
    except (ConfigError, RunError) as error:
        print(error, file=sys.stderr)
        return ExitCode.FAILED
    print(f"{given.url}: serves {wanted.model}", flush=True)
    return ExitCode.COMPLETED


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1:])))
