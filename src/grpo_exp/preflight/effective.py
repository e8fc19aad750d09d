"""What model, launch and batch come to, in words: what a reader would otherwise put together from three groups."""

from __future__ import annotations

from grpo_exp import devices
from grpo_exp.settings.model import HubModel, LocalModel, PretrainedModel
from grpo_exp.settings.run import RunSettings

_SHARING = {
    "ddp": "a whole copy each",
    "zero2": "gradients and optimizer shared out (DeepSpeed ZeRO-2)",
    "zero3": "weights, gradients and optimizer shared out (DeepSpeed ZeRO-3)",
    "fsdp1": "weights, gradients and optimizer shared out (FSDP1)",
    "fsdp2": "weights, gradients and optimizer shared out (FSDP2)",
}


def effective_lines(settings: RunSettings, *, runs_here: bool = True) -> list[tuple[str, str]]:
    """Return lines for the start of a run, each with its title.

    Args:
        settings: Of the run.
        runs_here: Say which kind of device this machine has; a login node has none of those of the cluster.
    """
    return [("model", _model_text(settings)), ("launch", _launch_text(settings, runs_here=runs_here))]


def _model_text(settings: RunSettings) -> str:
    model, lora = settings.model, settings.model.lora
    name = model.path if isinstance(model, LocalModel | HubModel) else model.kind
    words = [str(name), "4-bit weights" if lora.is_quantized else f"weights in {model.weights_dtype}"]
    targets = ",".join(lora.target_modules)
    words.append(f"LoRA r={lora.r} on {targets}" if lora.enabled else "all trained")
    if isinstance(model, PretrainedModel):
        words.append(f"attention {model.attn_implementation}")
    if settings.trainer.gradient_checkpointing:
        words.append("activations recomputed")
    return ", ".join([*words, f"learning rate {settings.trainer.learning_rate:g}"])


def _launch_text(settings: RunSettings, *, runs_here: bool) -> str:
    launch = settings.launch
    processes = f"{launch.num_processes} process{'es' if launch.num_processes > 1 else ''}"
    words = [processes if launch.num_nodes == 1 else f"{processes} on {launch.num_nodes} nodes"]
    if launch.num_processes > 1:
        words.append(_SHARING[launch.strategy])
    if launch.offload != "none":
        words.append(f"{launch.offload} in the memory of the CPU")
    words.append("passes without autocast" if launch.mixed_precision == "no" else f"{launch.mixed_precision} passes")
    device = launch.device
    if runs_here and device == "auto":
        device = "cpu" if devices.uses_cpu(device) else "cuda"
    words.append(f"device {device}")
    words.append("transformers generates" if settings.vllm.mode == "off" else f"vLLM generates ({settings.vllm.mode})")
    return ", ".join(words)
