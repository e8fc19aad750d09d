"""One optimizer step through the real trainer, twice, and the same step as the equations see it.

Three groups of four completions. The step is taken twice on the same completions (`num_iterations=2`), and the policy
moves in between: at the first pass every ratio is 1, at the second they are spread around it. Before the first pass the
policy has moved away from the reference.

Shapes: N = P x G completions, T tokens, K components, P prompts of G completions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grpo_exp.data.prompts import build_prompt
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import RewardComponent
from parity.equations import FILTERED, Step, advantages_N
from parity.real_trainer import build_trainer, fixed, load_policy

G, P, MAX_LENGTH = 4, 3, 8
N = P * G
#: Tokens of each completion, its end included; those of TRUNCATED have no end. Row 9 ends with its last allowed token.
LENGTHS = (3, 5, 8, 2, 4, 8, 6, 1, 7, 8, 8, 5)
TRUNCATED = (2, 5, 10)
#: The second group is dead: all of its rewards are equal, in both components.
REWARDS = {"correctness": (1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0), "format": (1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1)}
WEIGHTS = {"correctness": 1.0, "format": 0.5}
QUESTIONS = ("1+1?", "12+13?", "7+28?")
#: Standard deviations of the noise on all weights: from the reference to the old policy, from there to the new one.
MOVES = (0.15, 0.2)

Gradient = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Pass:
    """What one pass over the step gave."""

    loss: float
    gradient: Gradient
    micro_batches: Sequence[Sequence[int]]
    """Rows of each micro-batch of this process."""


def completions() -> list[list[int]]:
    """Return the tokens of the N completions, all different."""
    generator, end = np.random.default_rng(0), build_tokenizer().eos_token_id
    rows = [generator.integers(8, 60, size=length).tolist() for length in LENGTHS]
    return [row if i in TRUNCATED else [*row[:-1], end] for i, row in enumerate(rows)]


def inputs() -> list[dict[str, Any]]:
    """Return the rows as the data loader gives them: each prompt G times."""
    return [{"prompt": [dict(m) for m in build_prompt(q, None)], "target": "1"} for q in QUESTIONS for _ in range(G)]


def components(rows: slice) -> list[RewardComponent]:
    """Return the reward, for some of the rows."""
    return [fixed(name, values[rows], WEIGHTS[name]) for name, values in REWARDS.items()]


def move(model: Any, which: int) -> None:
    """Add noise to all weights, the same at each call."""
    generator = torch.Generator().manual_seed(which)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(MOVES[which] * torch.randn(parameter.shape, generator=generator))


# ------------------------------------------------------------------------------------------ through the trainer


def overrides(preset: str, micro_batch: int) -> list[str]:
    """Return the words for one step of the N completions, taken twice."""
    return [
        f"algorithm={preset}",
        f"algorithm.num_generations={G}",
        "algorithm.updates_per_batch=1",
        "algorithm.num_iterations=2",
        f"trainer.prompts_per_step={P}",
        f"trainer.max_completion_length={MAX_LENGTH}",
        f"trainer.per_device_train_batch_size={micro_batch}",
    ]


def build(folder: Path, out: Path, preset: str, *, micro_batch: int, rank: int = 0, num_processes: int = 1) -> Any:
    """Return a trainer that gets this process's share of the completions and has moved from the reference."""
    share = N // num_processes
    rows = slice(rank * share, (rank + 1) * share)
    launch = "inline" if num_processes == 1 else "ddp"
    words = overrides(preset, micro_batch)
    trainer = build_trainer(folder, out, *words, components=components(rows), launch=launch)
    given = completions()[rows]
    trainer._generate_single_turn = lambda prompt_ids, *rest: (copy.deepcopy(given), None)
    move(trainer.model, 0)
    return trainer


def run_twice(trainer: Any, model: Any, rows: slice = slice(N)) -> tuple[Pass, Pass]:
    """Take the step on this process, let the policy move, and take it again; no optimizer is involved.

    Args:
        trainer: As `build` returns it.
        model: Its model, as it is wrapped for training.
        rows: The rows of this process.
    """
    first = _run(trainer, model, inputs()[rows])
    move(trainer.model, 1)
    return first, _run(trainer, model, inputs()[rows])


def _run(trainer: Any, model: Any, batch: list[dict[str, Any]]) -> Pass:
    model.zero_grad()
    micro_steps = range(trainer.args.gradient_accumulation_steps)
    loss = sum(trainer.training_step(model, batch, None).item() for _ in micro_steps)
    gradient = {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}
    return Pass(loss, gradient, [_rows_of(ids) for ids in (b["completion_ids"] for b in trainer._buffered_inputs)])


def _rows_of(completion_ids: torch.Tensor) -> list[int]:
    """Find the rows of a micro-batch, which the trainer has shuffled, by their tokens."""
    pad = build_tokenizer().pad_token_id
    rows = {tuple(tokens): i for i, tokens in enumerate(completions())}
    return [rows[tuple(token for token in ids if token != pad)] for ids in completion_ids.tolist()]


# ------------------------------------------------------------------------------------------- for the equations


@dataclass(frozen=True)
class Policies:
    """Log-probabilities of the completions in float64, each completion alone and unpadded (NT)."""

    names: Sequence[str]
    """Of the parameters."""
    parameters: Sequence[tuple[torch.Tensor, ...]]
    """Of the policy at each pass."""
    policy: Sequence[torch.Tensor]
    """At each pass, with a gradient."""
    old: torch.Tensor
    reference: torch.Tensor


def policies(folder: Path) -> Policies:
    """Return the log-probabilities of reference, old policy and policy."""
    model = load_policy(folder)
    reference = log_probs_NT(_double(model)).detach()
    found, parameters = [], []
    for which in (0, 1):
        move(model, which)
        exact = _double(model)
        found.append(log_probs_NT(exact))
        parameters.append(tuple(exact.parameters()))
    names = [name for name, _ in model.named_parameters()]
    return Policies(names, parameters, found, found[0].detach(), reference)


def _double(model: Any) -> Any:
    return copy.deepcopy(model).double()


def log_probs_NT(model: Any) -> torch.Tensor:
    """Return log softmax at the tokens of each completion, 0 at padding."""
    tokenizer, padded = build_tokenizer(), []
    for row, tokens in enumerate(completions()):
        messages = [dict(message) for message in build_prompt(QUESTIONS[row // G], None)]
        text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        prompt = tokenizer.encode(text, add_special_tokens=False)
        logits_TV = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        found_T = torch.log_softmax(logits_TV, dim=-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
        padded.append(torch.nn.functional.pad(found_T, (0, MAX_LENGTH - len(tokens))))
    return torch.stack(padded)


def step_of(preset: str, found: Policies, which: int, micro_batches: Sequence[Sequence[int]]) -> Step:
    """Return a pass as the equations see it."""
    mask_NT = torch.tensor([[float(t < length) for t in range(MAX_LENGTH)] for length in LENGTHS]).double()
    if preset in FILTERED:
        mask_NT[list(TRUNCATED)] = 0
    rewards_KPG = np.array(list(REWARDS.values()), dtype=float).reshape(len(REWARDS), P, G)
    advantages = advantages_N(preset, rewards_KPG, np.array([WEIGHTS[name] for name in REWARDS]))
    return Step(
        log_policy_NT=found.policy[which],
        log_old_NT=found.old,
        log_reference_NT=found.reference,
        mask_NT=mask_NT,
        advantages_N=torch.tensor(advantages),
        max_length=MAX_LENGTH,
        micro_batches=micro_batches,
    )
