"""Faults that only several groups together have, or a group and this machine."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from grpo_exp import devices
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
        *_vllm_faults(settings),
        *(_device_faults(settings) if runs_here else ()),
    ]


def _length_faults(settings: RunSettings) -> list[str]:
    limit, wanted = _longest_context(settings), settings.trainer.max_completion_length
    if limit is None or wanted < limit:
        return []
    fix = ", or raise model.architecture.max_position_embeddings" if settings.model.kind == "tiny" else ""
    return [
        f"trainer.max_completion_length={wanted}: the model reads at most {limit} tokens, prompt included; "
        f"use a value well below{fix}"
    ]


def _longest_context(settings: RunSettings) -> int | None:
    """Return how many tokens the model reads, or None where its folder does not say."""
    if settings.model.kind == "tiny":
        return settings.model.architecture.max_position_embeddings
    config = _read_model_config(settings.model.path)
    if not isinstance(config, dict):
        return None
    text_config = config.get("text_config", config)
    limit = text_config.get("max_position_embeddings")
    scaling = text_config.get("rope_parameters") or text_config.get("rope_scaling") or {}
    factor = scaling.get("factor", 1) if isinstance(scaling, dict) else 1
    if not isinstance(limit, int) or not isinstance(factor, int | float):
        return None
    return int(limit * max(1, factor))


def _read_model_config(path: str | None) -> Any:
    """Return the content of `config.json`, or None where there is none to read."""
    file = Path(path or "").expanduser() / "config.json"
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # told by the model faults


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
    if not isinstance(_read_model_config(text), dict):
        return [
            f"model.path={text}: its config.json is no readable JSON object; give a folder written by save_pretrained"
        ]
    return [
        f"model.path={text}: holds no {what} ({' or '.join(patterns)}); give a folder written by save_pretrained"
        for what, patterns in _PARTS.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
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
    here = int(os.environ.get("LOCAL_WORLD_SIZE", launch.num_processes))
    if devices.uses_cpu(launch.device):
        most = max(_MAX_PROCESSES_ON_CPU, len(os.sched_getaffinity(0)))
        why, fix = f"this machine's CPU runs at most {most}, and each holds a copy of the model", ""
    else:
        visible = devices.count_visible_gpus()
        most = here if visible is None else visible
        why, fix = f"each needs a GPU of its own and {most} are visible", ", or launch.device=cpu"
    if here <= most:
        return []
    return [f"launch.num_processes={launch.num_processes}: {why}; use launch.num_processes={most} or less{fix}"]
