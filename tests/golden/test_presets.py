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

PRESETS = (
    "bnpo", "cispo", "dapo", "dr_grpo", "gdpo", "grpo", "gspo", "luspo", "orz", "r1", "sapo", "vespo",
)  # fmt: skip
#: Every field of GRPOConfig that enters the loss, the advantages, the sampling, the batch or the optimizer.
FIELDS = (
    # loss
    "loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "beta", "use_bias_correction_kl",
    "mask_truncated_completions", "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy",
    "off_policy_mask_threshold", "sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha",
    "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg",
    "vespo_lambda_neg",
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


GROUP = {"loss_type": "grpo", "importance_sampling_level": "token", "scale_rewards": "group", "temperature": 1.0}
TOKENS = GROUP | {"loss_type": "dapo"}
CLIP = {"epsilon": 0.2, "epsilon_high": 0.2}
#: What each paper says, apart from what is common to all: see below.
PAPERS: dict[str, dict[str, Any]] = {
    # DeepSeekMath, section 4.2 and eq. 3 and 4
    "grpo": GROUP | CLIP | {"beta": 0.04, "sync_ref_model": False},
    # DeepSeek-R1: KL 0.001, clip 10, the reference replaced every 400 steps
    "r1": GROUP | {"epsilon": 10.0, "epsilon_high": 10.0, "beta": 0.001, "sync_ref_model": True,
                   "ref_model_sync_steps": 400, "ref_model_mixup_alpha": 1.0},
    # DAPO, sections 2.3, 3.1, 3.3 and 3.4
    "dapo": TOKENS | {"epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0},
    # Dr. GRPO, section 3.2: neither length nor std
    "dr_grpo": GROUP | CLIP | {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0},
    "bnpo": GROUP | CLIP | {"loss_type": "bnpo", "beta": 0.0},
    # GSPO, eq. 7 and section 5.1
    "gspo": GROUP | {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4, "beta": 0.0},
    # MiniMax-M1, eq. 4; the cap is ScaleRL's, and absolute in TRL
    "cispo": GROUP | {"loss_type": "cispo", "epsilon_high": 5.0, "beta": 0.0},
    # SAPO
    "sapo": GROUP | {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "beta": 0.0},
    # LUSPO, section 5.1
    "luspo": GROUP | {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 2e-3,
                      "epsilon_high": 2.5e-3, "beta": 0.0},
    # VESPO, the authors' scripts
    "vespo": GROUP | {"loss_type": "vespo", "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0,
                      "vespo_lambda_neg": 2.0, "beta": 0.0},
    # GDPO: each component is normalised by itself
    "gdpo": GROUP | CLIP | {"multi_objective_aggregation": "normalize_then_sum", "beta": 0.0},
    # Open-Reasoner-Zero: no KL, advantages normalised over the batch
    "orz": TOKENS | CLIP | {"scale_rewards": "batch", "beta": 0.0},
}  # fmt: skip
#: Presets whose ratio is what is new: it leaves 1 only when a batch is used for several updates.
OFF_POLICY = {"cispo", "gspo", "luspo", "sapo", "vespo"}


@pytest.mark.parametrize("preset", PRESETS)
def test_numbers_of_the_paper(preset: str) -> None:
    """Worked from the papers, not from the files: the golden files alone could keep a wrong number for ever."""
    found, numbers = resolved(preset), PAPERS[preset]
    assert {name: found[name] for name in numbers} == numbers
    assert found["use_bias_correction_kl"] is False
    assert found["delta"] is None
    assert (found["top_p"], found["top_k"], found["entropy_coef"], found["top_entropy_quantile"]) == (1.0, 0, 0.0, 1.0)
    assert found["num_iterations"] == 1
    updates = found["steps_per_generation"] // found["gradient_accumulation_steps"]
    assert updates == (4 if preset in OFF_POLICY else 1)
    assert found["mask_truncated_completions"] is (preset == "dapo")
    if preset != "gdpo":
        assert found["multi_objective_aggregation"] == "sum_then_normalize"
