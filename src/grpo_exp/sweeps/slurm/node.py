"""Start one node's processes of a run over several: `srun ... python -m grpo_exp.sweeps.slurm.node SWEEP INDEX ...`.

It becomes `accelerate launch`, with the rank of the machine from SLURM_PROCID; all processes run grpo_exp.joined_point.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.accelerate_config import Node, build_environment, build_node_command, write_config
from grpo_exp.sweeps.manifest import SweepDirectory, settings_of


def main(words: Sequence[str]) -> None:
    """Become this node's launcher."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("index", type=int)
    parser.add_argument("--code-file", required=True)
    parser.add_argument("--wait", default="0")
    parser.add_argument("--num-processes", type=int, required=True)
    parser.add_argument("--main-address", required=True)
    parser.add_argument("--main-port", type=int, required=True)
    given = parser.parse_args(words)
    node = Node(
        rank=int(os.environ["SLURM_PROCID"]), num_nodes=int(os.environ["SLURM_NTASKS"]),
        num_processes=given.num_processes, main_address=given.main_address, main_port=given.main_port,
    )  # fmt: skip
    sweep = SweepDirectory(given.sweep.resolve())
    settings = settings_of(sweep.read_settings(sweep.read_entry(given.index)))
    config = Path(f"{given.code_file}.node{node.rank}.json")
    write_config(settings.launch, config, node=node)
    point = [str(sweep.path), str(given.index), f"--code-file={given.code_file}", f"--wait={given.wait}"]
    command = build_node_command(settings.launch, config, node, ["grpo_exp.joined_point", *point])
    local = max(1, node.num_processes // node.num_nodes)
    os.execve(command[0], command, build_environment(settings.launch, os.environ, local_processes=local))


if __name__ == "__main__":
    main(sys.argv[1:])
