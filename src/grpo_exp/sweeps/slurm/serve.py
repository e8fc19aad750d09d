"""Start vLLM on a server node: `srun ... python -m grpo_exp.sweeps.slurm.serve --model=NAME --port=N ... -- OPTIONS`.

With several nodes each holds one replica of the model (vLLM's data parallelism): the first one answers requests, the
others are headless (docs.vllm.ai, "Data Parallel Deployment").
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

#: vLLM offers the endpoints that take new weights only in this mode.
_DEV_MODE = "VLLM_SERVER_DEV_MODE"


def build_serve_command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the command line of this node's vLLM.

    Args:
        words: As typed after the module; further options of vLLM behind `--`.
        environ: With SLURM_PROCID and SLURM_NTASKS of the step.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for name in ("--vllm", "--model", "--port", "--head-address", "--rpc-port"):
        parser.add_argument(name, required=True)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args(words)
    rank, size = int(environ["SLURM_PROCID"]), int(environ["SLURM_NTASKS"])
    # What TRL's client needs to hand over weights and to be given the probabilities that were sampled from.
    command = [given.vllm, "serve", given.model, "--weight-transfer-config", '{"backend":"nccl"}',
               "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]  # fmt: skip
    if rank == 0:
        command += ["--host", "0.0.0.0", "--port", given.port]
    else:
        command += ["--headless", "--data-parallel-start-rank", str(rank)]
    if size > 1:
        command += ["--data-parallel-size", str(size), "--data-parallel-size-local", "1"]
        command += ["--data-parallel-address", given.head_address, "--data-parallel-rpc-port", given.rpc_port]
    return [*command, *given.options]


if __name__ == "__main__":
    _command = build_serve_command(sys.argv[1:], os.environ)
    os.execvpe(_command[0], _command, {**os.environ, _DEV_MODE: "1"})
