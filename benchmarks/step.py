"""The training part of a step: TRL's GRPOTrainer and ours on the same model, prompts and recorded completions.

python benchmarks/step.py [--losses dapo dr_grpo grpo] [--cases half_dead ...] [--repetitions 3] [--no-memory]

One optimizer step is 64 completions in 8 micro-batches of 8, with G 8 and prompts of 64 tokens, on a Qwen2 of 4 layers
and hidden size 256 with random weights. Lengths are log-normal (median 128 tokens, sigma 0.8), cut at 512. What is
timed is what follows generation and reward: dividing the batch, forward, loss, backward. Each repetition draws a batch
of its own, on which both sides run one after the other in one process; ratios are medians over repetitions and losses.
What the last line says:

  speedup_half_dead      stock time / our time, advantages of 4 of the 8 groups are 0 (promise: 5)
  speedup_none_dead      the same with all groups alive (promise: 2.4)
  speedup_equal_lengths  the same with 300 tokens in every completion: nothing to gain (promise: 0.98)
  ideal_half_dead        padded tokens that stock runs / real tokens of the rows with gradient: what a step without any
                         padding would gain if its time were proportional to its tokens; attention costs more than that
  peak_memory_ratio      our peak / stock's, above the memory before the step; the worse of half dead and none dead
                         (promise: 0.8). Resident memory of a process of its own for each, whose high-water mark is set
                         back before the step (Linux); at equal lengths both run the same shapes
  gradients_allclose     all gradients of all cases and losses agree
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# As our workers have it: threads that spin while they wait stall each other as soon as anything else wants a core.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from grpo_exp.backends.trl.fast_step import FastStepTrainer
from grpo_exp.backends.trl.reward_batch import RewardBatch
from grpo_exp.backends.trl.trainer import StepClock
from grpo_exp.models.load import quiet_libraries
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score

# Shapes: N completions of a step, P prompt tokens, T completion tokens.

NUM_ROWS, MICRO_BATCH, G = 64, 8, 8
PROMPT, MEDIAN, SIGMA, LIMIT, EQUAL = 64, 128, 0.8, 512, 300
VOCABULARY = 2048
CASES = ("half_dead", "none_dead", "equal_lengths")
Batch = dict[str, torch.Tensor]


class Recorded:
    """Hands out the recorded batch where TRL would generate and score."""

    recorded: Batch

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        return dict(self.recorded)


class Stock(Recorded, GRPOTrainer):
    """TRL as it is."""


class Fast(Recorded, FastStepTrainer):
    """TRL with our step."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="*", default=["dapo", "dr_grpo", "grpo"])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="measure time and gradients alone")
    parser.add_argument("--memory-of", choices=("stock", "fast"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    quiet_libraries()
    warnings.filterwarnings("ignore", category=FutureWarning)
    if arguments.memory_of is not None:
        print(json.dumps(peak_memory(arguments.memory_of, arguments.cases[0])))
        return
    print(json.dumps(measure(arguments)))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures, and print them as they come."""
    ratios: dict[str, list[float]] = {case: [] for case in arguments.cases}
    ideals: list[float] = []
    agree = True
    for loss in arguments.losses:
        stock, fast = build_trainers(loss)
        for trainer in (stock, fast):  # the first steps of a process are slower
            take_step(trainer, record_batch("none_dead", seed=99, median=16))
        for repetition in range(arguments.repetitions):
            for case in arguments.cases:
                batch = record_batch(case, seed=repetition)
                if repetition % 2:  # the second one has the warmer machine: they take turns
                    fast_seconds, ours = take_step(fast, batch)
                    stock_seconds, theirs = take_step(stock, batch)
                else:
                    stock_seconds, theirs = take_step(stock, batch)
                    fast_seconds, ours = take_step(fast, batch)
                difference = float((ours - theirs).norm() / theirs.norm())
                agree &= torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6 * float(theirs.abs().max()))
                ratios[case].append(stock_seconds / fast_seconds)
                ideals += [ideal_speedup(batch)] if case == "half_dead" else []
                print(
                    f"{loss:8} {case:14} stock {stock_seconds:6.2f} s  ours {fast_seconds:6.2f} s  "
                    f"x {ratios[case][-1]:5.2f}  gradients differ by {difference:.1e}",
                    flush=True,
                )
    found: dict[str, Any] = {
        f"speedup_{case}": round(statistics.median(seen), 3) for case, seen in ratios.items() if seen
    }
    if ideals:
        found["ideal_half_dead"] = round(statistics.median(ideals), 3)
    if not arguments.no_memory:
        found["peak_memory_ratio"] = round(worst_memory_ratio(arguments.threads), 3)
    return {**found, "gradients_allclose": bool(agree)}


def build_trainers(loss: str) -> tuple[Any, Any]:
    """Return stock and ours, on copies of one model."""
    model, tokenizer = build_model(), build_tokenizer()
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "1+1?"}], "target": "2"}] * NUM_ROWS)
    common = {"args": build_arguments(loss), "train_dataset": rows, "processing_class": tokenizer}
    stock = Stock(model=copy.deepcopy(model), reward_funcs=[_unused_reward], **common)
    rewards = RewardBatch([RewardComponent("correctness", 1.0, _unused_scorer)])
    fast = Fast(model=model, rewards=rewards, primary=0, clock=StepClock(), **common)
    for trainer in (stock, fast):
        assert trainer.model is not None
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = NUM_ROWS // MICRO_BATCH
    return stock, fast


def build_model() -> Qwen2ForCausalLM:
    """Return the network with random weights, the same ones in every process."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=0,
            eos_token_id=1, bos_token_id=None,
        )
    )  # fmt: skip


def build_arguments(loss: str) -> GRPOConfig:
    """Return TRL's arguments of one optimizer step per generated batch, on the CPU."""
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(), loss_type=loss, beta=0.0, num_generations=G, max_completion_length=LIMIT,
        per_device_train_batch_size=MICRO_BATCH, gradient_accumulation_steps=NUM_ROWS // MICRO_BATCH, max_steps=1,
        use_cpu=True, bf16=False, activation_checkpointing=False, report_to=[], save_strategy="no",
    )  # fmt: skip


def record_batch(case: str, *, seed: int, median: int = MEDIAN) -> Batch:
    """Return a generated batch as TRL hands it on: padded to its longest completion, with advantages."""
    generator = torch.Generator().manual_seed(seed)
    drawn_N = torch.exp(SIGMA * torch.randn(NUM_ROWS, generator=generator)) * median
    lengths_N = torch.full((NUM_ROWS,), EQUAL) if case == "equal_lengths" else drawn_N.long().clamp(1, LIMIT)
    mask_NT = (torch.arange(int(lengths_N.max())) < lengths_N.unsqueeze(1)).long()
    advantages_N = torch.randn(NUM_ROWS, generator=generator)
    if case == "half_dead":
        advantages_N[: NUM_ROWS // 2] = 0
    prompts_NP = torch.randint(3, VOCABULARY, (NUM_ROWS, PROMPT), generator=generator)
    return {
        "prompt_ids": prompts_NP,
        "prompt_mask": torch.ones_like(prompts_NP),
        "completion_ids": torch.randint(3, VOCABULARY, mask_NT.shape, generator=generator) * mask_NT,
        "completion_mask": mask_NT,
        "advantages": advantages_N,
        "num_items_in_batch": mask_NT.sum(),
    }


def ideal_speedup(batch: Batch) -> float:
    """Return padded tokens of all rows / real tokens of the rows with gradient."""
    alive_N = batch["advantages"] != 0
    padded = NUM_ROWS * (PROMPT + batch["completion_mask"].size(1))
    return padded / (PROMPT * int(alive_N.sum()) + int(batch["completion_mask"][alive_N].sum()))


def take_step(trainer: Any, batch: Batch) -> tuple[float, torch.Tensor]:
    """Return the seconds of all micro-steps, and the gradient."""
    trainer.recorded, trainer._buffered_inputs, trainer._step = batch, None, 0
    trainer._metrics["train"].clear()
    trainer.model.zero_grad()
    torch.manual_seed(1)  # TRL shuffles rows: both sides alike
    started = time.perf_counter()
    for _ in range(NUM_ROWS // MICRO_BATCH):
        trainer._compute_loss(trainer.model, trainer._prepare_inputs([])).backward()
        trainer._step += 1
    seconds = time.perf_counter() - started
    return seconds, torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])


def worst_memory_ratio(threads: int) -> float:
    """Return our peak / stock's, the worse of the two cases with unequal lengths."""
    ratios = []
    for case in ("half_dead", "none_dead"):
        peaks = {side: run_alone(side, case, threads) for side in ("stock", "fast")}
        ratios.append(peaks["fast"] / peaks["stock"])
        told = "  ".join(f"{side} {peak / 2**20:6.0f} MiB" for side, peak in peaks.items())
        print(f"peak memory, {case:10} {told}  x {ratios[-1]:.2f}", flush=True)
    return max(ratios)


def run_alone(side: str, case: str, threads: int) -> float:
    """Return what `peak_memory` says in a process of its own, whose freed blocks go back to the system at once."""
    words = [sys.executable, __file__, "--memory-of", side, "--cases", case, "--threads", str(threads)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def peak_memory(side: str, case: str) -> int:
    """Return how many bytes more than before are resident at the peak of one step."""
    stock, fast = build_trainers("dapo")
    trainer = stock if side == "stock" else fast
    take_step(trainer, record_batch("none_dead", seed=99, median=16))
    trainer.model.zero_grad()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = resident("VmHWM")
    take_step(trainer, record_batch(case, seed=0))
    return resident("VmHWM") - before


def resident(name: str) -> int:
    """Return a line of the process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _unused_reward(completions: Sequence[Any], **_: Any) -> list[float | None]:
    raise AssertionError("recorded batches are scored")


def _unused_scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
    raise AssertionError("recorded batches are scored")


if __name__ == "__main__":
    main()
