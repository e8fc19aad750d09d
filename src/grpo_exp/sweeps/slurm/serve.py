"""Start vLLM on a server node: `srun ... python -m grpo_exp.sweeps.slurm.serve SWEEP INDEX --port=N ... -- OPTIONS`.

With several nodes each holds one replica of the model. The command line is that of `grpo-exp serve`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_exp.serving.command import Replica, build_serve_command, build_serve_environment
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.manifest import SweepDirectory, settings_of
from grpo_exp.vllm_package import find_vllm


def build_command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the command line of this node's vLLM.

    Args:
        words: As typed after the module; further options of vLLM behind `--`.
        environ: With SLURM_PROCID and SLURM_NTASKS of the step.

    Raises:
        ConfigError: The run's model has no files to serve.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("index", type=int)
    for name in ("--vllm", "--port", "--head-address", "--rpc-port"):
        parser.add_argument(name, required=True)
    place = list(words).index("--")
    given, options = parser.parse_args(words[:place]), words[place + 1 :]
    sweep = SweepDirectory(given.sweep.resolve())
    settings = settings_of(sweep.read_settings(sweep.read_entry(given.index)))
    replica = Replica(
        rank=int(environ["SLURM_PROCID"]), size=int(environ["SLURM_NTASKS"]), head_address=given.head_address,
        rpc_port=int(given.rpc_port),
    )  # fmt: skip
    command = build_serve_command(
        _started_by(settings, given.vllm), host="0.0.0.0", port=int(given.port), package=find_vllm(), replica=replica
    )
    return [*command, *options]


def _started_by(settings: RunSettings, program: str) -> RunSettings:
    """Return settings whose server is started by the launcher's command, unless the run names another."""
    if settings.vllm.mode != "server" or settings.vllm.serve_command:
        return settings
    return settings.model_copy(update={"vllm": settings.vllm.model_copy(update={"serve_command": (program,)})})


if __name__ == "__main__":
    _command = build_command(sys.argv[1:], os.environ)
    os.execvpe(_command[0], _command, build_serve_environment(os.environ))
