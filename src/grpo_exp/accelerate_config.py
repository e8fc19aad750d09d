"""What `accelerate launch` and DeepSpeed are told, for one node and for several.

The keys are those of the files that `accelerate config` writes (accelerate 1.15, `ClusterConfig`) and of DeepSpeed's
JSON file. Values that the trainer decides (batch, accumulation, clipping, types) are "auto" there: transformers fills
them in from its own arguments and refuses others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.devices import uses_cpu
from grpo_exp.rundir import write_json
from grpo_exp.settings.launch import LaunchSettings

#: Variables that accelerate takes settings from.
_ACCELERATE = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
_ZERO_STAGES = {"zero2": 2, "zero3": 3}


@dataclass(frozen=True, slots=True)
class Node:
    """Which of the nodes this is, and where they meet."""

    rank: int
    num_nodes: int
    num_processes: int
    """Of all nodes together."""
    main_address: str
    main_port: int


def write_config(settings: LaunchSettings, path: Path, *, node: Node | None = None) -> None:
    """Write the file for `accelerate launch`, and beside it the one for DeepSpeed where that is used.

    Args:
        settings: Of the launch.
        path: Of accelerate's file.
        node: Of several; None is the only one.
    """
    deepspeed = build_deepspeed_config(settings)
    deepspeed_path = path.with_name(f"{path.stem}-deepspeed.json")
    if deepspeed is not None:
        write_json(deepspeed_path, deepspeed)
    write_json(path, build_accelerate_config(settings, deepspeed_path=deepspeed_path, node=node))


def build_accelerate_config(
    settings: LaunchSettings, *, deepspeed_path: Path | None = None, node: Node | None = None
) -> dict[str, Any]:
    """Return what `accelerate launch` reads instead of the file that `accelerate config` wrote on this machine.

    That file may ask for DeepSpeed, other GPUs or other processes; accelerate reads it wherever none is named.
    """
    num_processes = settings.num_processes if node is None else node.num_processes
    several = num_processes > 1
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        # On a CPU, too: with use_cpu several processes are silently one. ACCELERATE_USE_CPU makes them gloo ranks.
        "distributed_type": "MULTI_GPU" if several or node is not None else "NO",
        "num_machines": 1,
        "num_processes": num_processes,
        "mixed_precision": settings.mixed_precision,
        "use_cpu": not several and node is None and settings.strategy == "ddp" and uses_cpu(settings.device),
        "dynamo_backend": "NO",
    }
    if node is not None:
        config |= {
            "num_machines": node.num_nodes,
            "machine_rank": node.rank,
            "main_process_ip": node.main_address,
            "main_process_port": node.main_port,
            "rdzv_backend": "static",
            "same_network": True,
        }
    if settings.strategy in _ZERO_STAGES:
        del config["mixed_precision"]  # accelerate refuses it beside DeepSpeed's own file; the command line has it
        return config | {"distributed_type": "DEEPSPEED", "deepspeed_config": _deepspeed(settings, deepspeed_path)}
    if settings.strategy in {"fsdp1", "fsdp2"}:
        return config | {"distributed_type": "FSDP", "fsdp_config": _fsdp(settings)}
    return config


def _deepspeed(settings: LaunchSettings, path: Path | None) -> dict[str, Any]:
    return {
        "deepspeed_config_file": str(path),
        # Weights are cut up while they are loaded: no process ever holds all of them.
        "zero3_init_flag": settings.strategy == "zero3",
        # With several nodes each starts its own processes, as without DeepSpeed; pdsh wants ssh between them.
        "deepspeed_multinode_launcher": "standard",
    }


def _fsdp(settings: LaunchSettings) -> dict[str, Any]:
    return {
        "fsdp_version": 2 if settings.strategy == "fsdp2" else 1,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",  # a unit per decoder layer; the model names its class
        "fsdp_reshard_after_forward": _reshard(settings),
        "fsdp_offload_params": settings.offload == "parameters",
        "fsdp_state_dict_type": "FULL_STATE_DICT",  # so that the saved model is one that anybody can load
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_use_orig_params": True,
    }


def _reshard(settings: LaunchSettings) -> bool | str:
    if settings.strategy == "fsdp2":
        return settings.reshard_after_forward
    return "FULL_SHARD" if settings.reshard_after_forward else "SHARD_GRAD_OP"  # the older version's words


def build_deepspeed_config(settings: LaunchSettings) -> dict[str, Any] | None:
    """Return DeepSpeed's own file, or None where it is not used."""
    stage = _ZERO_STAGES.get(settings.strategy)
    if stage is None:
        return None
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if settings.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if settings.offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True  # otherwise a saved model is empty
        for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"):
            zero[name] = "auto"  # transformers works them out from the width of the model
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
        # torch's AdamW, the one that every other strategy uses, is none that DeepSpeed knows of.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def build_node_command(settings: LaunchSettings, config: Path, node: Node, words: Sequence[str]) -> list[str]:
    """Return the command line of the launcher of one node's processes.

    Args:
        settings: Of the launch.
        config: The file that accelerate is to read.
        node: This one.
        words: Module that the processes run, and its arguments.
    """
    return [
        sys.executable, "-m", "accelerate.commands.launch",
        "--config_file", str(config),
        "--num_machines", str(node.num_nodes),
        "--num_processes", str(node.num_processes),
        "--machine_rank", str(node.rank),
        "--main_process_ip", node.main_address,
        "--main_process_port", str(node.main_port),
        "--mixed_precision", settings.mixed_precision,
        "-m", *words,
    ]  # fmt: skip


def build_environment(
    settings: LaunchSettings, environ: Mapping[str, str], *, local_processes: int, gpus: str | None = None
) -> dict[str, str]:
    """Return the environment of a launcher: the given one, without what it tells accelerate, with threads shared out.

    Args:
        settings: Of the launch.
        environ: The environment of the caller.
        local_processes: Workers on this machine.
        gpus: Those that they may see, as CUDA_VISIBLE_DEVICES names them; None leaves it to the given environment.
    """
    threads = settings.threads_per_process or max(1, len(os.sched_getaffinity(0)) // local_processes)
    inherited = {name: value for name, value in environ.items() if not name.startswith(_ACCELERATE)}
    environment = {
        **inherited,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpus
    if uses_cpu(settings.device):
        # With use_cpu several processes are silently one; this variable makes them gloo ranks.
        environment["ACCELERATE_USE_CPU"] = "true"
    return environment


def strategy_fault(settings: LaunchSettings, environ: Mapping[str, str]) -> str | None:
    """Say how a launcher of the user's own starts the workers otherwise than the settings say, or return None.

    Args:
        settings: Of the launch.
        environ: The environment of a worker, where accelerate says what it starts.
    """
    found = "ddp"
    if environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        found = "zero2 or zero3"
    elif environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        found = f"fsdp{environ.get('FSDP_VERSION', '1')}"
    if settings.strategy in found:
        return None
    return (
        f"launch.strategy={settings.strategy}: accelerate launch started the processes for {found}; use "
        f"launch.strategy={found}, or start them with a configuration for {settings.strategy}"
    )
