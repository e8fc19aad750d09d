"""Trainers that train on recorded completions instead of sampled ones, so that two of them see the same batch.

Shapes: N rows of a generated batch on one process, P prompt tokens, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.backends.trl.fast_step import FastStepTrainer
from grpo_exp.backends.trl.reward_batch import RewardBatch
from grpo_exp.backends.trl.trainer import StepClock, TimedGRPOTrainer
from grpo_exp.backends.trl.training import to_dataset
from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.models.lora import build_lora
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch

G = 4
MAX_LENGTH = 12
MAX_PROMPT = 6
#: Name -> settings. gspo is grpo with one ratio per sequence.
LOSSES = {
    "grpo": ["algorithm.loss_type=grpo"],
    "gspo": ["algorithm.loss_type=grpo", "algorithm.importance_sampling_level=sequence"],
    "dapo": ["algorithm.loss_type=dapo"],
    "dr_grpo": ["algorithm.loss_type=dr_grpo"],
    "cispo": ["algorithm.loss_type=cispo", "algorithm.epsilon_high=5"],
    "sapo": ["algorithm.loss_type=sapo"],
    "luspo": ["algorithm.loss_type=luspo", "algorithm.importance_sampling_level=sequence"],
    "vespo": ["algorithm.loss_type=vespo"],
}


class Recorded:
    """Hands out one recorded batch after the other where TRL would generate and score."""

    recorded: list[dict[str, torch.Tensor]]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
        return dict(self.recorded.pop(0))


class StockRecorded(Recorded, TimedGRPOTrainer):
    """TRL's step."""


class FastRecorded(Recorded, FastStepTrainer):
    """Ours."""


@dataclass(frozen=True)
class Kind:
    """What a recorded batch is like."""

    num_rows: int
    dead_groups: Sequence[int] = ()
    """Groups of G rows whose advantages are 0."""
    masked: bool = False
    """Completions at the limit are left out of the loss, as overlong filtering does."""
    off_policy: bool = False
    """With old log-probabilities that differ from the policy's."""
    reference: bool = False
    """With reference log-probabilities."""


def make_batch(model: Any, kind: Kind, *, seed: int) -> dict[str, torch.Tensor]:
    """Return what TRL hands on after it generated and scored: completions of 1 to MAX_LENGTH tokens, many short."""
    generator = np.random.default_rng(seed)
    num_rows = kind.num_rows
    prompts_N = generator.integers(2, MAX_PROMPT + 1, size=num_rows)
    lengths_N = np.clip(np.exp(generator.normal(1.2, 0.8, size=num_rows)).astype(int), 1, MAX_LENGTH)
    lengths_N[1] = MAX_LENGTH  # one at the limit, in the first group
    prompt_ids, prompt_mask = np.zeros((num_rows, MAX_PROMPT), int), np.zeros((num_rows, MAX_PROMPT), int)
    completion_ids, completion_mask = np.zeros((num_rows, MAX_LENGTH), int), np.zeros((num_rows, MAX_LENGTH), int)
    for row, (prompt, length) in enumerate(zip(prompts_N, lengths_N, strict=True)):
        prompt_ids[row, MAX_PROMPT - prompt :] = generator.integers(8, 60, size=prompt)
        prompt_mask[row, MAX_PROMPT - prompt :] = 1
        completion_ids[row, :length] = generator.integers(8, 60, size=length)
        completion_mask[row, :length] = not (kind.masked and length == MAX_LENGTH)
    advantages_N = generator.normal(size=num_rows)
    for group in kind.dead_groups:
        advantages_N[group * G : (group + 1) * G] = 0
    batch = {
        "prompt_ids": torch.tensor(prompt_ids),
        "prompt_mask": torch.tensor(prompt_mask),
        "completion_ids": torch.tensor(completion_ids),
        "completion_mask": torch.tensor(completion_mask),
        "advantages": torch.tensor(advantages_N).float(),
        "num_items_in_batch": torch.tensor(int(completion_mask.sum())),
    }
    policy_NT = logps(model, batch)
    if kind.off_policy:
        noise_NT = torch.tensor(generator.normal(scale=0.3, size=policy_NT.shape)).float()
        batch["old_per_token_logps"] = (policy_NT + noise_NT) * batch["completion_mask"]
    if kind.reference:
        noise_NT = torch.tensor(generator.normal(scale=0.5, size=policy_NT.shape)).float()
        batch["ref_per_token_logps"] = (policy_NT + noise_NT) * batch["completion_mask"]
    return batch


def logps(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the log-probability of each completion token, (N, T), by a plain softmax over all logits."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits[:, MAX_PROMPT - 1 : -1]
    return logits.log_softmax(-1).gather(-1, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)


def build(
    trainer_class: type[TimedGRPOTrainer], policy: Path, output: Path, words: Sequence[str], **arguments: Any
) -> Any:
    """Return a trainer of composed settings on a fresh copy of the policy.

    Args:
        trainer_class: StockRecorded or FastRecorded.
        policy: Folder of the model.
        output: Folder for what TRL writes.
        words: Settings as they are typed.
        **arguments: Fields of GRPOConfig to change.
    """
    launch = [] if any(word.startswith("launch=") for word in words) else ["launch=inline"]
    settings = load.to_settings(load.compose(["tracker=none", *launch, *words]))
    plan = solve_batch(settings)
    args = build_arguments(settings, plan, output_dir=output, use_cpu=True)
    args.reward_weights = [1.0]
    for name, value in arguments.items():
        setattr(args, name, value)
    rows = [
        PromptRow(build_prompt(f"{number}+1?", None), str(number + 1))
        for number in range(max(8, 4 * plan.prompts_per_generation))
    ]
    trainer = trainer_class(
        primary=0,
        clock=StepClock(),
        model=Qwen2ForCausalLM.from_pretrained(policy, dtype=torch.float32),
        args=args,
        rewards=RewardBatch([RewardComponent("correctness", 1.0, _unused)]),
        train_dataset=to_dataset(rows),
        processing_class=build_tokenizer(),
        peft_config=build_lora(settings.model.lora),
    )
    trainer.model.train()
    # The training loop sets this at each step to the micro-steps of the accumulation window.
    trainer.current_gradient_accumulation_steps = plan.gradient_accumulation_steps
    return trainer


def _unused(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
    raise AssertionError("recorded batches are scored")


def gradient(model: Any) -> torch.Tensor:
    """Return all gradients as one vector; each weight has one."""
    return torch.cat([weight.grad.flatten().clone() for weight in model.parameters()])


def relative_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return |first - second| / |second|, and |first| where the second is 0."""
    size = float(second.norm())
    return float((first - second).norm()) / size if size else float(first.norm())
