"""Faults that only several groups together have, or a group and this machine."""

from __future__ import annotations

import os
from pathlib import Path

from grpo_exp import devices
from grpo_exp.preflight.model_config import longest_context, read_model_config
from grpo_exp.preflight.vllm_faults import vllm_faults
from grpo_exp.settings.run import RunSettings

#: So many processes may share a CPU, however few cores it has: enough to try out what several do.
_MAX_PROCESSES_ON_CPU = 8


#: What a model's folder needs besides `config.json`, in any of the forms that transformers reads.
_PARTS = {"weights": ("*.safetensors", "*.bin"), "tokenizer": ("tokenizer*", "vocab*", "*.model")}


def group_faults(settings: RunSettings, *, runs_here: bool = True) -> list[str]:
    """Return what is wrong, in the order of the groups.

    Args:
        settings: Of the run.
        runs_here: Look at this machine's devices, too; a login node has none of those of the cluster.
    """
    return [
        *_length_faults(settings),
        *_model_faults(settings),
        *vllm_faults(settings, runs_here=runs_here),
        *(_device_faults(settings) if runs_here else ()),
    ]


def _length_faults(settings: RunSettings) -> list[str]:
    limit, wanted = longest_context(settings), settings.trainer.max_completion_length
    if limit is None or wanted < limit:
        return []
    fix = ", or raise model.architecture.max_position_embeddings" if settings.model.kind == "tiny" else ""
    return [
        f"trainer.max_completion_length={wanted}: the model reads at most {limit} tokens, prompt included; "
        f"use a value well below{fix}"
    ]


def _model_faults(settings: RunSettings) -> list[str]:
    model, launch = settings.model, settings.launch
    if model.kind != "local" or model.path is None:
        return []
    faults = _model_folder_faults(model.path)
    if model.dtype == "float16" and launch.mixed_precision == "fp16":
        faults.append(
            "model.dtype=float16: with launch.mixed_precision=fp16 the loss is scaled, and gradients in float16 "
            "cannot be scaled back; use model.dtype=float32, or launch.mixed_precision=no"
        )
    if model.attn_implementation == "flash_attention_2" and devices.uses_cpu(launch.device):
        faults.append(
            "model.attn_implementation=flash_attention_2: needs a GPU and the run is on the CPU; use "
            "model.attn_implementation=sdpa"
        )
    return faults


def _model_folder_faults(text: str) -> list[str]:
    """Look whether the folder holds a model; what is no path on this machine may be a hub id."""
    folder = Path(text).expanduser()
    try:
        is_hub_id = not folder.exists() and not text.startswith(("/", ".", "~"))
    except OSError as error:
        return [
            f"model.path={text[:80]}: cannot be a path ({error.strerror}); give a folder written by save_pretrained"
        ]
    if is_hub_id:
        return []
    if not (folder / "config.json").is_file():
        return [f"model.path={text}: holds no config.json; give a folder written by save_pretrained"]
    if not isinstance(read_model_config(text), dict):
        return [
            f"model.path={text}: its config.json is no readable JSON object; give a folder written by save_pretrained"
        ]
    return [
        f"model.path={text}: holds no {what} ({' or '.join(patterns)}); give a folder written by save_pretrained"
        for what, patterns in _PARTS.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


def _device_faults(settings: RunSettings) -> list[str]:
    launch = settings.launch
    if launch.device == "cuda" and not devices.gpu_is_visible():
        return [
            "launch.device=cuda: no GPU is visible here (the driver lists none, or CUDA_VISIBLE_DEVICES hides them); "
            "use launch.device=cpu, or start it where one is"
        ]
    # A launcher of the user's own may have spread the processes over several machines; it says how many are here.
    here = int(os.environ.get("LOCAL_WORLD_SIZE", launch.num_processes))
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
