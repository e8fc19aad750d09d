"""From settings to TRL's GRPOConfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.vllm import ColocatedVllm, ServerVllm

#: transformers 5.24 renamed the switch; given under its new name it warns of nothing.
CHECKPOINTING = (
    "activation_checkpointing"
    if "activation_checkpointing" in GRPOConfig.__dataclass_fields__
    else "gradient_checkpointing"
)


def build_arguments(settings: RunSettings, plan: BatchPlan, *, output_dir: Path, use_cpu: bool) -> GRPOConfig:
    """Build TRL's arguments.

    Every number that decides a curve is stated: TRL's own defaults have drifted before.
    """
    fields = {
        **_algorithm(settings),
        **_batch(plan),
        **optimizer_fields(settings),
        CHECKPOINTING: settings.trainer.gradient_checkpointing,
        **_generation(settings),
        **_bookkeeping(settings, output_dir),
        "use_cpu": use_cpu,
        "bf16": settings.launch.mixed_precision == "bf16",
        "fp16": settings.launch.mixed_precision == "fp16",
    }
    return GRPOConfig(**fields, **settings.trainer.extra)


def _algorithm(settings: RunSettings) -> dict[str, Any]:
    algorithm, reward = settings.algorithm, settings.reward
    return {
        "loss_type": algorithm.loss_type,
        "importance_sampling_level": algorithm.importance_sampling_level,
        "scale_rewards": algorithm.scale_rewards,
        "multi_objective_aggregation": algorithm.multi_objective_aggregation,
        "epsilon": algorithm.epsilon,
        "epsilon_high": algorithm.clip_high,
        "delta": algorithm.delta,
        "beta": algorithm.beta,
        "use_bias_correction_kl": algorithm.use_bias_correction_kl,
        "sync_ref_model": algorithm.sync_ref_model and algorithm.beta > 0,  # TRL refuses it without a reference model
        "ref_model_sync_steps": algorithm.ref_model_sync_steps,
        "ref_model_mixup_alpha": algorithm.ref_model_mixup_alpha,
        "sapo_temperature_pos": algorithm.sapo_temperature_pos,
        "sapo_temperature_neg": algorithm.sapo_temperature_neg,
        "vespo_k_pos": algorithm.vespo_k_pos,
        "vespo_lambda_pos": algorithm.vespo_lambda_pos,
        "vespo_k_neg": algorithm.vespo_k_neg,
        "vespo_lambda_neg": algorithm.vespo_lambda_neg,
        "mask_truncated_completions": algorithm.mask_truncated_completions,
        "num_iterations": algorithm.num_iterations,
        "reward_weights": [component.weight for component in reward.components.values()],
    }


def _batch(plan: BatchPlan) -> dict[str, Any]:
    return {
        "num_generations": plan.num_generations,
        "per_device_train_batch_size": plan.per_device_train_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "steps_per_generation": plan.steps_per_generation,
    }


def optimizer_fields(settings: RunSettings) -> dict[str, Any]:
    """Return the fields of AdamW and its schedule, under the names of transformers."""
    trainer = settings.trainer
    return {
        "max_steps": trainer.max_steps,
        "learning_rate": trainer.learning_rate,
        "lr_scheduler_type": trainer.lr_scheduler_type,
        "warmup_steps": trainer.warmup_steps,
        "optim": "adamw_torch",
        "weight_decay": trainer.weight_decay,
        "adam_beta1": trainer.adam_beta1,
        "adam_beta2": trainer.adam_beta2,
        "max_grad_norm": trainer.max_grad_norm,
    }


def _generation(settings: RunSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_completion_length": settings.trainer.max_completion_length,
        "temperature": settings.algorithm.temperature,
        "top_p": settings.algorithm.top_p,
        "top_k": 0,
        "use_vllm": settings.vllm.mode != "off",
    }
    vllm = settings.vllm
    if vllm.mode == "off":
        return fields
    fields |= {
        "vllm_mode": vllm.mode,
        "vllm_model_impl": vllm.model_impl,
        "vllm_structured_outputs_regex": vllm.structured_outputs_regex,
        "vllm_importance_sampling_correction": vllm.importance_sampling_correction,
        "vllm_importance_sampling_mode": vllm.importance_sampling_mode,
        "vllm_importance_sampling_clip_max": vllm.importance_sampling_clip_max,
        "vllm_importance_sampling_clip_min": vllm.importance_sampling_clip_min,
    }
    return fields | (_colocated(vllm) if vllm.mode == "colocate" else _served(vllm))


def _colocated(vllm: ColocatedVllm) -> dict[str, Any]:
    return {
        "vllm_gpu_memory_utilization": vllm.gpu_memory_utilization,
        "vllm_tensor_parallel_size": vllm.tensor_parallel_size,
        "vllm_max_model_length": vllm.max_model_length,
        "vllm_enable_sleep_mode": vllm.enable_sleep_mode,
    }


def _served(vllm: ServerVllm) -> dict[str, Any]:
    """Return where the server is; what is null stands in the run's folder by the time that workers read it."""
    ports = {"vllm_server_port": vllm.server_port, "vllm_group_port": vllm.group_port}
    return {
        "vllm_server_base_url": vllm.server_base_url,
        "vllm_server_host": vllm.server_host,
        **{name: port for name, port in ports.items() if port is not None},
        "vllm_server_timeout": vllm.server_timeout_seconds,
    }


def _bookkeeping(settings: RunSettings, output_dir: Path) -> dict[str, Any]:
    return {
        "output_dir": str(output_dir),
        "seed": settings.seed,
        "shuffle_dataset": True,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # a loss that is not finite must be seen
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": [],  # trackers are fed from metrics.jsonl
        "disable_tqdm": True,
        "push_to_hub": False,
        "ddp_find_unused_parameters": False,
    }
