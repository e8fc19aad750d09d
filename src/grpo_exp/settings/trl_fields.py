"""GRPOConfig's fields and their types, read from the installed source: importing it would import torch."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from grpo_exp.settings.typed_text import type_fault

#: Base class first: a field that a class declares again has the type it gives there.
_SOURCES = (
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("trl", "trainer/grpo_config.py", "GRPOConfig"),
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
    "sync_ref_model": "algorithm.sync_ref_model",
    "ref_model_sync_steps": "algorithm.ref_model_sync_steps",
    "ref_model_mixup_alpha": "algorithm.ref_model_mixup_alpha",
    "sapo_temperature_pos": "algorithm.sapo_temperature_pos",
    "sapo_temperature_neg": "algorithm.sapo_temperature_neg",
    "vespo_k_pos": "algorithm.vespo_k_pos",
    "vespo_lambda_pos": "algorithm.vespo_lambda_pos",
    "vespo_k_neg": "algorithm.vespo_k_neg",
    "vespo_lambda_neg": "algorithm.vespo_lambda_neg",
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
    "vllm_importance_sampling_clip_min": "vllm.importance_sampling_clip_min",
    "vllm_importance_sampling_cap": "vllm.importance_sampling_clip_max",
    "vllm_model_impl": "vllm.model_impl",
    "vllm_structured_outputs_regex": "vllm.structured_outputs_regex",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_max_model_length": "vllm.max_model_length",
    "vllm_enable_sleep_mode": "vllm.enable_sleep_mode",
    "vllm_server_base_url": "vllm.server_base_url",
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
    "save_strategy": "trainer.checkpoint.every_steps",
    "save_steps": "trainer.checkpoint.every_steps",
    "save_total_limit": "trainer.checkpoint.keep",
    "save_only_model": "none: a run goes on from the whole state",
    "save_on_each_node": "none",
    "enable_jit_checkpoint": "none: a run saves when it stops",
    "metric_for_best_model": "trainer.checkpoint.best_metric",
    "greater_is_better": "trainer.checkpoint.best_is",
    "ignore_data_skip": "none: a run goes on with the prompts that come next",
    "restore_callback_states_from_checkpoint": "none",
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
    """Return a message for each field of `trainer.extra` that is unknown, decided elsewhere or of the wrong type."""
    if not extra:
        return []
    known = grpo_config_fields()
    return [fault for key, value in extra.items() if (fault := _fault(key, value, known)) is not None]


def _fault(key: str, value: Any, known: Mapping[str, ast.expr]) -> str | None:
    if key in OWNED:
        owner = OWNED[key]
        fix = "it is fixed" if owner.startswith("none") else f"set {owner} instead"
        reason = owner.removeprefix("none").lstrip(": ")
        why = f" ({reason})" if owner.startswith("none:") else ""
        return f"trainer.extra.{key}: is decided elsewhere; {fix}{why}"
    if key not in known:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {_where(close[0])}?" if close else "; see TRL's documentation of GRPOConfig"
        return f"trainer.extra.{key}: is no field of TRL's GRPOConfig{hint}"
    return type_fault(f"trainer.extra.{key}", value, known[key]) or _range_fault(key, value)


def _where(key: str) -> str:
    """Return what to set for a field: the setting that owns it, or the field itself."""
    owner = OWNED.get(key, "none")
    return f"trainer.extra.{key}" if owner.startswith("none") else owner


def _range_fault(key: str, value: Any) -> str | None:
    """Return a message for a value that TRL takes and transformers refuses in the first generation."""
    if key == "min_p" and value is not None and not 0 <= value <= 1:
        return f"trainer.extra.min_p={value}: is a probability, from 0 to 1; for example +trainer.extra.min_p=0.05"
    if key == "repetition_penalty" and not (isinstance(value, float) and value > 0):
        return (
            f"trainer.extra.repetition_penalty={value}: must be a number above 0, written with a point; for example "
            "+trainer.extra.repetition_penalty=1.1"
        )
    return None


@cache
def grpo_config_fields() -> dict[str, ast.expr]:
    """Return all fields of the installed TRL's GRPOConfig with their annotations, as they stand in the source."""
    fields: dict[str, ast.expr] = {}
    for package, file, class_name in _SOURCES:
        spec = importlib.util.find_spec(package)
        assert spec is not None  # both are dependencies of ours
        assert spec.submodule_search_locations
        tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8"))
        body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
        for item in body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                fields[item.target.id] = item.annotation
    return {name: annotation for name, annotation in fields.items() if not name.startswith("_")}
