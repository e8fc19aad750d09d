"""Start one node's processes of a run over several: `srun ... python -m grpo_exp.sweeps.slurm.node SWEEP INDEX ...`.

It becomes `accelerate launch`, with the rank of the machine from SLURM_PROCID; all processes run grpo_exp.joined_point.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.devices import uses_cpu
from grpo_exp.rundir import write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.manifest import SweepDirectory, settings_of


@dataclass(frozen=True, slots=True)
class Node:
    """Which of the nodes this is, and where they meet."""

    rank: int
    num_nodes: int
    num_processes: int
    """Of all nodes together."""
    main_address: str
    main_port: int


def build_config(settings: RunSettings, node: Node) -> dict[str, Any]:
    """Return what `accelerate launch` reads instead of the file that `accelerate config` wrote on the machine."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",  # on a CPU, too; see build_environment
        "num_machines": node.num_nodes,
        "num_processes": node.num_processes,
        "machine_rank": node.rank,
        "main_process_ip": node.main_address,
        "main_process_port": node.main_port,
        "rdzv_backend": "static",
        "same_network": True,
        "mixed_precision": settings.launch.mixed_precision,
        "use_cpu": False,
        "dynamo_backend": "NO",
    }


def build_command(config: Path, node: Node, point: Sequence[str]) -> list[str]:
    """Return the command line of this node's launcher.

    Args:
        config: What accelerate is to read.
        node: This one.
        point: Words for grpo_exp.joined_point.
    """
    return [
        sys.executable, "-m", "accelerate.commands.launch",
        "--config_file", str(config),
        "--num_machines", str(node.num_nodes),
        "--num_processes", str(node.num_processes),
        "--machine_rank", str(node.rank),
        "--main_process_ip", node.main_address,
        "--main_process_port", str(node.main_port),
        "-m", "grpo_exp.joined_point", *point,
    ]  # fmt: skip


def build_environment(settings: RunSettings, node: Node, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launcher: the caller's, with the threads shared out."""
    local = max(1, node.num_processes // node.num_nodes)
    threads = settings.launch.threads_per_process or max(1, len(os.sched_getaffinity(0)) // local)
    environment = {
        **environ,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if uses_cpu(settings.launch.device):
        # With use_cpu several processes are silently one; this variable makes them gloo ranks.
        environment["ACCELERATE_USE_CPU"] = "true"
    return environment


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
    write_json(config, build_config(settings, node))
    point = [str(sweep.path), str(given.index), f"--code-file={given.code_file}", f"--wait={given.wait}"]
    command = build_command(config, node, point)
    os.execve(command[0], command, build_environment(settings, node, os.environ))


if __name__ == "__main__":
    main(sys.argv[1:])
