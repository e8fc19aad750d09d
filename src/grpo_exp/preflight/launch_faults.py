"""Faults and notes of how processes share the model."""

from __future__ import annotations

import importlib.util

from grpo_exp import devices
from grpo_exp.settings.run import RunSettings


def launch_faults(settings: RunSettings, *, runs_here: bool) -> list[str]:
    """Return what keeps the processes from being started as asked for."""
    launch, algorithm, faults = settings.launch, settings.algorithm, []
    given = f"launch.strategy={launch.strategy}"
    if launch.strategy in {"zero2", "zero3"} and importlib.util.find_spec("deepspeed") is None:
        faults.append(
            f"{given}: the package deepspeed is not installed; pip install 'grpo-exp[deepspeed]', or use launch=fsdp2"
        )
    if launch.strategy != "ddp" and devices.uses_cpu(launch.device) and (runs_here or launch.device == "cpu"):
        faults.append(
            f"{given}: accelerate shares a model out over GPUs only, and on a CPU every process would silently hold "
            "all of it; use launch.strategy=ddp"
        )
    if launch.shards_weights and algorithm.sync_ref_model and algorithm.beta > 0:
        faults.append(
            f"{given}: algorithm.sync_ref_model=true has a reference model that moves, and of one that is cut up over "
            "the processes no checkpoint holds the whole; use algorithm.sync_ref_model=false, or launch.strategy=zero2"
        )
    if launch.shards_weights and settings.trainer.extra.get("ds3_gather_for_generation") is False:
        faults.append(
            "trainer.extra.ds3_gather_for_generation=false: the held-out evaluation gathers the weights in any case; "
            "leave it out"
        )
    return faults


def launch_notes(settings: RunSettings, *, on_cpu: bool) -> list[str]:
    """Return settings of the launch that do nothing here."""
    launch, found = settings.launch, []
    if not launch.reshard_after_forward and launch.strategy not in {"fsdp1", "fsdp2"}:
        found.append(
            f"launch.reshard_after_forward=false has no effect: launch.strategy is {launch.strategy}; leave it out, or "
            "use launch=fsdp2"
        )
    if launch.num_nodes == 1:
        found += [
            f"launch.{name}={value} has no effect: launch.num_nodes is 1; leave it out"
            for name, value in (("machine_rank", launch.machine_rank), ("main_process_ip", launch.main_process_ip))
            if value is not None
        ]
    if launch.num_processes == 1 and launch.strategy != "ddp" and launch.offload == "none":
        found.append(
            f"launch.strategy={launch.strategy} has no effect: one process has nobody to share with; use "
            "launch=single, or raise launch.num_processes"
        )
    if on_cpu and launch.offload != "none":
        found.append(f"launch.offload={launch.offload} has no effect: the run is on the CPU already; leave it out")
    return found
