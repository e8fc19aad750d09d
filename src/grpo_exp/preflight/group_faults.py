"""Faults that only several groups together have, or a group and this machine."""

from __future__ import annotations

import os

from grpo_exp import devices
from grpo_exp.preflight.adapter_faults import adapter_faults
from grpo_exp.preflight.launch_faults import launch_faults
from grpo_exp.preflight.model_faults import model_faults
from grpo_exp.preflight.vllm_faults import vllm_faults
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
        *model_faults(settings),
        *adapter_faults(settings),
        *vllm_faults(settings, runs_here=runs_here),
        *launch_faults(settings, runs_here=runs_here),
        *(_device_faults(settings) if runs_here else ()),
    ]


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
        visible, serving = devices.count_visible_gpus(), _serving_gpus(settings)
        if serving and (visible is None or serving >= visible):
            return [_serving_fault(serving, visible)]
        most = here if visible is None else visible - serving
        left = f", without the {serving} that serve" if serving else ""
        why, fix = f"each needs a GPU of its own and {most} are visible{left}", ", or launch.device=cpu"
    if here <= most:
        return []
    most *= launch.num_nodes
    return [f"launch.num_processes={launch.num_processes}: {why}; use launch.num_processes={most} or less{fix}"]


def _serving_gpus(settings: RunSettings) -> int:
    """Return how many of this machine's GPUs a server of the run takes."""
    return settings.vllm.num_gpus or 0 if settings.vllm.mode == "server" else 0


def _serving_fault(serving: int, visible: int | None) -> str:
    if visible is None:
        return (
            f"vllm.num_gpus={serving}: nobody knows how many GPUs there are, since the driver lists none; name them in "
            "CUDA_VISIBLE_DEVICES=0,1,..."
        )
    return (
        f"vllm.num_gpus={serving}: {visible} GPU(s) are visible, and at least one must be left to train; use fewer, or "
        "vllm=colocate"
    )
