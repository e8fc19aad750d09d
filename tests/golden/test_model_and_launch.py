"""What each preset of model and launch makes of a run: the arguments that differ from the default's, and the files.

A preset that nobody can run here, for want of a hub or of GPUs, is at least looked at once and not changed unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from architecture.checkout import CHECKOUT
from grpo_exp.accelerate_config import Node, build_accelerate_config, build_deepspeed_config
from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.models.lora import build_lora
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.model import PretrainedModel
from grpo_exp.settings.run import RunSettings

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

#: What only a user knows.
NEEDED = {"local": ["model.path=folder"], "hub": ["model.path=organisation/name"]}
#: Says when the arguments were made, and where.
MADE_BY_CHANCE = ("logging_dir", "output_dir")


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CHECKOUT / "conf" / group).glob("*.yaml"))


def compose(words: Sequence[str]) -> RunSettings:
    return load.to_settings(load.compose(["tracker=none", *words]))


def arguments(settings: RunSettings) -> dict[str, Any]:
    found = build_arguments(settings, solve_batch(settings), output_dir=Path("run"), use_cpu=True).to_dict()
    return {name: value for name, value in found.items() if name not in MADE_BY_CHANCE}


def differing(settings: RunSettings, default: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments(settings).items() if value != default[name]}


def loading(settings: RunSettings) -> dict[str, Any]:
    """Return what a model is loaded with."""
    model = settings.model
    if not isinstance(model, PretrainedModel):
        return {}
    names = (
        "kind", "path", "variant", "revision", "trust_remote_code", "attn_implementation", "context_length",
        "chat_template", "chat_template_kwargs", "reasoning_prefill", "opens_reasoning", "weights_dtype",
    )  # fmt: skip
    return {name: getattr(model, name, None) for name in names}


def test_models(check_golden: Callable[[str, str], None]) -> None:
    default = arguments(compose([]))
    found = {}
    for name in options("model"):
        settings = compose([f"model={name}", *NEEDED.get(name, [])])
        found[name] = {"arguments": differing(settings, default), "loading": loading(settings)}
    check_golden("models.json", json.dumps(found, indent=2) + "\n")


def test_adapters(check_golden: Callable[[str, str], None]) -> None:
    found = {}
    for name in options("model/lora"):
        settings = compose(["model=qwen2_5_1_5b", f"model/lora={name}"])
        lora = build_lora(settings.model.lora)
        kept = ("r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "bias", "task_type")
        found[name] = {
            "learning_rate": arguments(settings)["learning_rate"],
            "weights_dtype": settings.model.weights_dtype,
            "quantization": settings.model.lora.quantization,
            "peft": None if lora is None else {field: lora.to_dict()[field] for field in kept},
        }
    check_golden("adapters.json", json.dumps(found, indent=2) + "\n")


def test_launches(check_golden: Callable[[str, str], None]) -> None:
    default = arguments(compose([]))
    found = {}
    for name in options("launch"):
        settings = compose([f"launch={name}", "launch.device=cuda"])
        node = Node(1, settings.launch.num_nodes, settings.launch.num_processes, "n1", 29500)
        accelerate = build_accelerate_config(
            settings.launch,
            deepspeed_path=Path("accelerate-deepspeed.json"),
            node=node if settings.launch.num_nodes > 1 else None,
        )
        found[name] = {
            "arguments": differing(settings, default),
            "accelerate": accelerate,
            "deepspeed": build_deepspeed_config(settings.launch),
        }
    check_golden("launches.json", json.dumps(found, indent=2) + "\n")
