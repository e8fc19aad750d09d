"""Start this machine's processes of a run over several: the same command on each of them becomes `accelerate launch`.

The processes then run the command again, and the main one composes, checks and owns the run (`joined`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from grpo_exp.accelerate_config import Node, build_environment, build_node_command, write_config
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.resumption import expected_run
from grpo_exp.revisions import pinned, recorded
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.settings.run import RunSettings


def find_node(settings: LaunchSettings, environ: Mapping[str, str]) -> Node:
    """Return which of the machines this is and where they meet, from the settings or else the environment.

    Raises:
        ConfigError: Neither says; all that is missing is told.
    """
    rank = settings.machine_rank if settings.machine_rank is not None else environ.get("SLURM_NODEID")
    address = settings.main_process_ip or environ.get("MASTER_ADDR")
    faults = []
    if rank is None or not str(rank).isdecimal():
        faults.append(
            f"launch.machine_rank=null: launch.num_nodes={settings.num_nodes} and nothing says which of them this is; "
            "give launch.machine_rank=0 on the first, 1 on the next, or start the command with srun"
        )
    if address is None:
        faults.append(
            f"launch.main_process_ip=null: launch.num_nodes={settings.num_nodes} and nothing says where they meet; "
            "give launch.main_process_ip=ADDRESS of the first machine, or set MASTER_ADDR"
        )
    if settings.main_process_port is None:
        faults.append(
            "launch.main_process_port=null: machines cannot agree on a free one; give launch.main_process_port=29500"
        )
    if faults:
        raise ConfigError(faults)
    assert address is not None
    assert settings.main_process_port is not None
    return Node(int(str(rank)), settings.num_nodes, settings.num_processes, address, settings.main_process_port)


def become_launcher(settings: RunSettings, words: Sequence[str]) -> NoReturn:
    """Check the run, and replace this process by the launcher of this machine's processes.

    Raises:
        ConfigError: Something is wrong with the settings, or it is not said which machine this is.
    """
    launch = settings.launch
    node = find_node(launch, os.environ)
    prepare(pinned(settings, recorded(expected_run(settings))))
    config = Path(tempfile.mkdtemp(prefix="grpo_exp-node-")) / "accelerate.json"
    write_config(launch, config, node=node)
    command = build_node_command(launch, config, node, ["grpo_exp.train", *words])
    environment = build_environment(launch, os.environ, local_processes=node.num_processes // node.num_nodes)
    os.execve(command[0], command, environment)
