"""Names of GRPOConfig's fields, read from the installed source: importing it would import torch."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_SOURCES = (
    ("trl", "trainer/grpo_config.py"),
    ("trl", "trainer/base_config.py"),
    ("transformers", "training_args.py"),
)

#: Fields that a setting here decides -> that setting.
OWNED = {
    "loss_type": "algorithm.loss_type",
    "importance_sampling_level": "algorithm.importance_sampling_level",
    "scale_rewards": "algorithm.scale_rewards",
    "multi_objective_aggregation": "algorithm.multi_objective_aggregation",
    "epsilon": "algorithm.epsilon",
    "epsilon_high": "algorithm.epsilon_high",
    "delta": "algorithm.delta",
    "beta": "algorithm.beta",
    "use_bias_correction_kl": "algorithm.use_bias_correction_kl",
    "mask_truncated_completions": "algorithm.mask_truncated_completions",
    "num_iterations": "algorithm.num_iterations",
    "num_generations": "algorithm.num_generations",
    "temperature": "algorithm.temperature",
    "top_p": "algorithm.top_p",
    "top_k": "none: sampling from all tokens keeps ratios unbiased",
    "reward_weights": "reward.components.NAME.weight",
    "per_device_train_batch_size": "trainer.per_device_train_batch_size",
    "gradient_accumulation_steps": "trainer.prompts_per_step",
    "steps_per_generation": "algorithm.updates_per_batch",
    "generation_batch_size": "algorithm.updates_per_batch",
    "max_completion_length": "trainer.max_completion_length",
    "max_steps": "trainer.max_steps",
    "num_train_epochs": "trainer.max_steps",
    "learning_rate": "trainer.learning_rate",
    "lr_scheduler_type": "trainer.lr_scheduler_type",
    "warmup_steps": "trainer.warmup_steps",
    "optim": "none: AdamW",
    "weight_decay": "trainer.weight_decay",
    "adam_beta1": "trainer.adam_beta1",
    "adam_beta2": "trainer.adam_beta2",
    "max_grad_norm": "trainer.max_grad_norm",
    "gradient_checkpointing": "trainer.gradient_checkpointing",
    "activation_checkpointing": "trainer.gradient_checkpointing",
    "use_vllm": "vllm=colocate or vllm=server",
    "vllm_mode": "vllm=colocate or vllm=server",
    "vllm_importance_sampling_correction": "vllm.importance_sampling_correction",
    "vllm_importance_sampling_mode": "vllm.importance_sampling_mode",
    "vllm_importance_sampling_clip_max": "vllm.importance_sampling_clip_max",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_max_model_length": "vllm.max_model_length",
    "vllm_enable_sleep_mode": "vllm.enable_sleep_mode",
    "vllm_server_host": "vllm.server_host",
    "vllm_server_port": "vllm.server_port",
    "vllm_group_port": "vllm.group_port",
    "vllm_server_timeout": "vllm.server_timeout_seconds",
    "use_cpu": "launch.device",
    "bf16": "launch.mixed_precision",
    "fp16": "launch.mixed_precision",
    "output_dir": "output_dir",
    "seed": "seed",
    "data_seed": "seed",
    "shuffle_dataset": "none: prompts are shuffled by the seed",
    "report_to": "tracker",
    "logging_strategy": "none: every step is logged",
    "logging_steps": "none: every step is logged",
    "logging_nan_inf_filter": "none: a loss that is not finite must be seen",
    "save_strategy": "trainer.save_model",
    "eval_strategy": "trainer.eval_before",
    "disable_tqdm": "none: progress is ours",
    "push_to_hub": "none: upload the folder model/ of a run",
    "ddp_find_unused_parameters": "none",
    "generation_kwargs": "algorithm.temperature and algorithm.top_p",
    "auto_find_batch_size": "trainer.per_device_train_batch_size",
    "do_eval": "trainer.eval_before",
    "eval_on_start": "trainer.eval_before",
    "load_best_model_at_end": "trainer.save_model",
    "resume_from_checkpoint": "resume",
}


def extra_faults(extra: Mapping[str, Any]) -> list[str]:
    """Return a message for each key of `trainer.extra` that is unknown or decided elsewhere."""
    if not extra:
        return []
    known = grpo_config_fields()
    return [fault for key in extra if (fault := _fault(key, known)) is not None]


def _fault(key: str, known: Iterable[str]) -> str | None:
    if key in OWNED:
        owner = OWNED[key]
        fix = "it is fixed" if owner.startswith("none") else f"set {owner} instead"
        reason = owner.removeprefix("none").lstrip(": ")
        why = f" ({reason})" if owner.startswith("none:") else ""
        return f"trainer.extra.{key}: is decided elsewhere; {fix}{why}"
    if key not in set(known):
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else "; see TRL's documentation of GRPOConfig"
        return f"trainer.extra.{key}: is no field of TRL's GRPOConfig{hint}"
    return None


@cache
def grpo_config_fields() -> frozenset[str]:
    """Return the names of all fields of the installed TRL's GRPOConfig."""
    names: set[str] = set()
    for package, file in _SOURCES:
        spec = importlib.util.find_spec(package)
        assert spec is not None  # both are dependencies of ours
        assert spec.submodule_search_locations
        tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in {
                "GRPOConfig",
                "_BaseConfig",
                "TrainingArguments",
            }:
                names |= {
                    item.target.id
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
    return frozenset(name for name in names if not name.startswith("_"))
