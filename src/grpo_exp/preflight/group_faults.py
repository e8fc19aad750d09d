"""Faults that only several groups together have, or a group and this machine."""

from __future__ import annotations

import importlib.util
import os

from grpo_exp import devices
from grpo_exp.preflight.adapter_faults import adapter_faults
from grpo_exp.preflight.launch_faults import launch_faults
from grpo_exp.preflight.model_faults import model_faults
from grpo_exp.settings.run import RunSettings

#: So many processes may share a CPU, however few cores it has: enough to try out what several do.
_MAX_PROCESSES_ON_CPU = 8


def group_faults(settings: RunSettings, *, runs_here: bool = True) -> list[str]:
    """Return what is wrong, in the order of the groups.

    Args:
        settings: Of the run.
        runs_here: Look at this machine's devices, too; a login node has none of those of the cluster.
    """
    return [
        *model_faults(settings, runs_here=runs_here),
        *adapter_faults(settings, runs_here=runs_here),
        *_vllm_faults(settings),
        *launch_faults(settings, runs_here=runs_here),
        *(_device_faults(settings) if runs_here else ()),
    ]


def _vllm_faults(settings: RunSettings) -> list[str]:
    vllm = settings.vllm
    if vllm.mode == "off":
        return []
    faults = []
    if importlib.util.find_spec("vllm") is None:
        faults.append(
            f"vllm={vllm.mode}: the package vllm is not installed; pip install 'grpo-exp[vllm]', or use vllm=off"
        )
    if settings.launch.device == "cpu":
        faults.append(f"vllm={vllm.mode}: needs a GPU and launch.device is cpu; use vllm=off")
    if vllm.mode == "server" and vllm.server_port == vllm.group_port:
        faults.append(
            f"vllm.group_port={vllm.group_port}: is vllm.server_port, too, and each needs its own port; use another"
        )
    masks_sequences = vllm.importance_sampling_correction and vllm.importance_sampling_mode.startswith("sequence")
    if settings.algorithm.loss_type == "vespo" and masks_sequences:
        faults.append(
            f"vllm.importance_sampling_mode={vllm.importance_sampling_mode}: algorithm.loss_type=vespo weighs "
            "sequences itself and wants a correction per token; use token_truncate or token_mask"
        )
    return [*faults, *_colocation_faults(settings)]


def _colocation_faults(settings: RunSettings) -> list[str]:
    vllm, processes = settings.vllm, settings.launch.num_processes
    if vllm.mode != "colocate":
        return []
    faults = []
    if processes % vllm.tensor_parallel_size:
        near = max(n for n in range(1, vllm.tensor_parallel_size + 1) if processes % n == 0)
        faults.append(
            f"vllm.tensor_parallel_size={vllm.tensor_parallel_size}: launch.num_processes={processes} does not divide "
            f"by it, and the engines share out the processes; use {near}"
        )
    length, completion = vllm.max_model_length, settings.trainer.max_completion_length
    if length is not None and length <= completion:
        faults.append(
            f"vllm.max_model_length={length}: holds the prompt, too, and trainer.max_completion_length is "
            f"{completion}; use a larger value, or null"
        )
    return faults


def _device_faults(settings: RunSettings) -> list[str]:
    launch = settings.launch
    if launch.device == "cuda" and not devices.gpu_is_visible():
        return [
            "launch.device=cuda: no GPU is visible here (the driver lists none, or CUDA_VISIBLE_DEVICES hides them); "
            "use launch.device=cpu, or start it where one is"
        ]
    # A launcher of the user's own may have spread the processes over several machines; it says how many are here.
    here = int(os.environ.get("LOCAL_WORLD_SIZE", launch.num_processes // launch.num_nodes))
    if devices.uses_cpu(launch.device):
        most = max(_MAX_PROCESSES_ON_CPU, len(os.sched_getaffinity(0)))
        why, fix = f"this machine's CPU runs at most {most}, and each holds a copy of the model", ""
    else:
        visible = devices.count_visible_gpus()
        most = here if visible is None else visible
        why, fix = f"each needs a GPU of its own and {most} are visible", ", or launch.device=cpu"
    if here <= most:
        return []
    most *= launch.num_nodes
    return [f"launch.num_processes={launch.num_processes}: {why}; use launch.num_processes={most} or less{fix}"]
