"""Priming of the built-in policy: supervised steps on formatted answers of a noisy teacher.

The teacher is often wrong and often forgets the box, so the primed policy gives a right and boxed answer in about two
cases of five: enough for groups with both right and wrong answers, which is what GRPO learns from.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from grpo_exp.data.arithmetic import Problem, draw_problem
from grpo_exp.data.prompts import build_prompt
from grpo_exp.models.example_tokens import encode_example
from grpo_exp.models.tokenizer import PAD
from grpo_exp.settings.model import Priming

# Shapes: B examples of a batch, T tokens of the longest.

#: How a wrong teacher errs: a slip in the ones or the tens.
_SLIPS = (-10, -1, 1, 10)
_IGNORED = -100


def prime(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    settings: Priming,
    *,
    on_step: Callable[[int, float], None],
) -> None:
    """Train a fresh model in place.

    Args:
        model: The policy; left in evaluation mode.
        tokenizer: Its tokenizer, padding on the left.
        settings: Seed, length and noise.
        on_step: Called after each step with its number (from 1) and its loss in nats per token.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, settings.steps))
    model.train()
    for step in range(settings.steps):
        first = step * settings.batch_size
        texts = [_example(tokenizer, settings, index) for index in range(first, first + settings.batch_size)]
        inputs_BT, attention_BT, labels_BT = _collate(tokenizer, texts)
        loss = model(input_ids=inputs_BT, attention_mask=attention_BT, labels=labels_BT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        on_step(step + 1, loss.item())
    model.eval()


def _rate(step: int, steps: int) -> float:
    """Linear warm-up over 5 % of the steps, then a cosine to 0."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _example(tokenizer: PreTrainedTokenizerBase, settings: Priming, index: int) -> tuple[list[int], list[int]]:
    """Return token ids of prompt and answer of example `index`; problems come from the training split."""
    problem = draw_problem(settings.seed, "train", index, max_operand=settings.max_operand, operations=("+",))
    answer = teacher_answer(problem, settings, random.Random(f"{settings.seed} {index}"))
    return encode_example(tokenizer, build_prompt(problem.question, None), answer)


def teacher_answer(problem: Problem, settings: Priming, generator: random.Random) -> str:
    """Return what the noisy teacher writes: right and boxed, right without a box, or wrong and boxed."""
    draw = generator.random()
    right = problem.answer
    if draw < settings.fraction_right_boxed:
        value, boxed = right, True
    elif draw < settings.fraction_right_boxed + settings.fraction_right_unboxed:
        value, boxed = right, False
    else:
        slips = [slip for slip in _SLIPS if right + slip >= 0]
        value, boxed = right + generator.choice(slips), True
    answer = f"\\boxed{{{value}}}" if boxed else str(value)
    return f"<think>{problem.left}{problem.operation}{problem.right}={value}</think>{answer}"


def _collate(
    tokenizer: PreTrainedTokenizerBase, examples: list[tuple[list[int], list[int]]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad on the left, and score the answers only."""
    length = max(len(prompt) + len(answer) for prompt, answer in examples)
    shape = (len(examples), length)
    (pad,) = tokenizer.encode(PAD, add_special_tokens=False)
    inputs_BT = torch.full(shape, pad, dtype=torch.long)
    attention_BT = torch.zeros(shape, dtype=torch.long)
    labels_BT = torch.full(shape, _IGNORED, dtype=torch.long)
    for row, (prompt, answer) in enumerate(examples):
        start = length - len(prompt) - len(answer)
        inputs_BT[row, start:] = torch.tensor(prompt + answer)
        attention_BT[row, start:] = 1
        labels_BT[row, length - len(answer) :] = torch.tensor(answer)
    return inputs_BT, attention_BT, labels_BT
