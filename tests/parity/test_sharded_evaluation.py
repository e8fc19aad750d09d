"""A held-out evaluation of weights that are cut up over two processes gives what one process gives.

accelerate cuts weights up on GPUs only, so PyTorch's FSDP2 is applied by hand here, to the model that a run would have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig

from grpo_exp.backends.trl.generation import SamplingPlan, build_generate
from grpo_exp.data.prompts import build_prompt
from grpo_exp.models.tokenizer import build_tokenizer
from parity.forked import fork_two
from parity.real_trainer import load_policy

PROMPTS = [[dict(m) for m in build_prompt(question, None)] for question in ("1+1?", "12+13?", "7+28?")]


def generate(model: Any, *, together: bool) -> list[list[tuple[str, int]]]:
    """Answer three prompts greedily, one a batch: the second process has one batch less than the first."""
    tokenizer = build_tokenizer()
    config = GenerationConfig(
        max_new_tokens=6, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, disable_compile=True
    )
    plan = SamplingPlan(batch_size=1, seed=0, together=together)
    found = build_generate(model, tokenizer, config, Accelerator(cpu=True), plan)(PROMPTS, 1, greedy=True)
    return [[(completion.text, completion.num_tokens) for completion in group] for group in found]


def generate_on_two(out: Path, policy: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = load_policy(policy)
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    found = generate(model, together=True)
    if accelerator.is_main_process:
        torch.save(found, out)


def test_weights_that_are_cut_up_answer_as_whole_ones(policy_folder: Path, tmp_path: Path) -> None:
    fork_two(generate_on_two, tmp_path / "found.pt", policy_folder, seconds=60)
    assert torch.load(tmp_path / "found.pt") == generate(load_policy(policy_folder), together=False)
