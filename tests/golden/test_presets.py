"""Resolved GRPOConfig of each preset: the fields that decide numbers, as TRL will read them.

The files catch what no single test states: a default that drifts in TRL, a number that a change elsewhere moves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

PRESETS = ("dapo", "dr_grpo", "grpo")
#: Every field of GRPOConfig that enters the loss, the advantages, the sampling, the batch or the optimizer.
FIELDS = (
    # loss
    "loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "beta", "use_bias_correction_kl",
    "mask_truncated_completions", "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy",
    "off_policy_mask_threshold", "sync_ref_model",
    # advantages
    "scale_rewards", "multi_objective_aggregation", "reward_weights",
    # sampling
    "num_generations", "max_completion_length", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "generation_kwargs", "use_vllm", "cache_implementation",
    # batch
    "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size",
    "num_iterations", "shuffle_dataset", "max_steps", "disable_dropout",
    # optimizer
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "label_smoothing_factor",
    "neftune_noise_alpha",
    # precision and seeds
    "bf16", "fp16", "tf32", "cast_lm_head_to_fp32", "seed", "data_seed", "full_determinism",
)  # fmt: skip


@cache
def resolved(preset: str) -> dict[str, Any]:
    settings = load.to_settings(load.compose([f"algorithm={preset}"]))
    plan = solve_batch(settings)
    arguments = build_arguments(settings, plan, output_dir=Path("run"), use_cpu=True).to_dict()
    return {field: arguments[field] for field in FIELDS}


@pytest.mark.parametrize("preset", PRESETS)
def test_resolved_arguments(preset: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"{preset}.json", json.dumps(resolved(preset), indent=2) + "\n")


def test_every_preset_has_a_file() -> None:
    conf = Path(__file__).parents[2] / "conf" / "algorithm"
    assert tuple(sorted(path.stem for path in conf.glob("*.yaml"))) == PRESETS


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        # DeepSeekMath, section 4.2 and eq. 3 and 4
        ("grpo", {"loss_type": "grpo", "scale_rewards": "group", "beta": 0.04, "epsilon": 0.2, "epsilon_high": 0.2}),
        # DAPO, sections 2.3, 3.1, 3.3 and 3.4
        ("dapo", {"loss_type": "dapo", "scale_rewards": "group", "beta": 0.0, "epsilon": 0.2, "epsilon_high": 0.28}),
        # Dr. GRPO, section 3.2: neither length nor std
        ("dr_grpo", {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0, "epsilon": 0.2}),
    ],
)
def test_numbers_of_the_paper(preset: str, numbers: dict[str, Any]) -> None:
    """Worked from the papers, not from the files: the golden files alone could keep a wrong number for ever."""
    found = resolved(preset)
    assert {name: found[name] for name in numbers} == numbers
    assert found["use_bias_correction_kl"] is False
    assert found["delta"] is None
    assert found["num_iterations"] == 1
    assert found["steps_per_generation"] == found["gradient_accumulation_steps"]
    assert found["mask_truncated_completions"] is (preset == "dapo")
