"""Which rows of an optimizer step are run, in which micro-batch, and cut how: tensors in, tensors out.

All completions of a generated batch are padded to the longest prompt and the longest completion. A row costs its padded
length, so rows of one length belong together, each micro-batch is cut to its own longest row, and short rows share one
micro-batch where long ones have one to themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo_exp.backends.trl.length_budget import Part, divide
from grpo_exp.errors import RunError

# Shapes: N rows of one optimizer step on this process, B rows of a micro-batch, P prompt tokens, T completion tokens.

Batch = dict[str, Any]

_PROMPT = frozenset({"prompt_ids", "prompt_mask"})  # padded on the left
_LOGPS = frozenset({"old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps"})
#: Padded on the right; advantages and the importance ratio may have one value a row instead.
_COMPLETION = _LOGPS | {"completion_ids", "completion_mask", "tool_mask", "importance_sampling_ratio", "advantages"}
_OF_THE_WHOLE = frozenset({"num_items_in_batch"})  # counted over the generated batch, and stays so
#: TRL's metrics take a width of 1 for one value a sequence, so no micro-batch is cut below this.
_MIN_WIDTH = 2


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """What may be left out, and what may not."""

    num_parts: int
    """Micro-steps of the optimizer step."""
    by_advantage: bool
    """Leave rows with advantage 0 out: exact where nothing but the advantage drives the loss, at beta 0."""
    cut_prompts: bool
    """Cut the padding of prompts, too: exact where positions are relative."""
    fill: bool
    """Put a stand-in into each micro-batch without rows: other processes wait for this one inside the model."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows that are run together."""

    inputs: Batch
    """What TRL's `_compute_loss` takes; empty where nothing is run."""
    num_rows: int
    """Rows of the batch that are in it."""
    num_stand_ins: int = 0
    """Rows that were put in so that the model is run at all: 0 or 1."""


def join(micro_batches: Sequence[Batch]) -> Batch:
    """Put equally wide micro-batches together again.

    Raises:
        RunError: They hold something that has no known place here, such as images.
    """
    unknown = sorted(set(micro_batches[0]) - _PROMPT - _COMPLETION - _OF_THE_WHOLE)
    if unknown:
        raise RunError(
            f"trainer.fast_step=true: the batch holds {', '.join(unknown)}, and only text can be laid out anew; use "
            "trainer.fast_step=false"
        )
    return {
        name: value if name in _OF_THE_WHOLE else torch.cat([batch[name] for batch in micro_batches])
        for name, value in micro_batches[0].items()
    }


def lay_out(batch: Batch, rules: LayoutRules) -> list[MicroBatch]:
    """Divide the rows that can have a gradient into micro-batches, the longest first.

    The first one always goes through the model, with a stand-in where no row is left: the gradient of the step is then
    0, and not absent, which an optimizer with momentum tells apart.

    Args:
        batch: The rows of an optimizer step on this process.
        rules: How.

    Returns:
        `rules.num_parts` micro-batches, those without rows last.
    """
    rows = rows_with_gradient(batch, by_advantage=rules.by_advantage).nonzero().flatten().tolist()
    prompt_lengths, completion_lengths = _widths(batch, rules)
    parts = divide(prompt_lengths, completion_lengths, rows, rules.num_parts)
    made = [MicroBatch(select(batch, part), len(part.rows)) for part in parts]
    while len(made) < rules.num_parts:
        runs = rules.fill or not made
        made.append(MicroBatch(_stand_in(batch, prompt_lengths), 0, 1) if runs else MicroBatch({}, 0))
    return made


def loss_mask(batch: Batch) -> Tensor:
    """Return which tokens are in the loss, (N, T): those of the completion, without what tools wrote."""
    mask_NT = batch["completion_mask"]
    return mask_NT * batch["tool_mask"] if "tool_mask" in batch else mask_NT


def rows_with_gradient(batch: Batch, *, by_advantage: bool) -> Tensor:
    """Return which rows can have a gradient, (N,) boolean.

    A row without a token in the loss has none. Neither has one whose advantage is 0, where nothing but the advantage
    drives the loss: in every loss type of TRL 1.16 a token's loss is the advantage times a finite factor.
    """
    alive_N = loss_mask(batch).bool().any(dim=1)
    if not by_advantage:
        return alive_N
    return alive_N & (batch["advantages"] != 0).reshape(len(alive_N), -1).any(dim=1)


def select(batch: Batch, part: Part) -> Batch:
    """Return the rows of a part, cut to its widths: prompts on the left, completions on the right."""
    index_B = torch.tensor(part.rows, device=batch["completion_ids"].device)
    selected: Batch = {}
    for name, value in batch.items():
        if name in _OF_THE_WHOLE:
            selected[name] = value
        elif value.dim() == 1:
            selected[name] = value[index_B]
        elif name in _PROMPT:
            selected[name] = value[index_B, value.size(1) - part.prompt_width :]
        else:
            selected[name] = value[index_B, : part.completion_width]
    return selected


def _widths(batch: Batch, rules: LayoutRules) -> tuple[list[int], list[int]]:
    """Return how wide the prompt and the completion of each row must stay."""
    num_rows, prompt_width = batch["prompt_mask"].shape
    prompts = batch["prompt_mask"].sum(dim=1).tolist() if rules.cut_prompts else [prompt_width] * num_rows
    least = min(_MIN_WIDTH, batch["completion_mask"].size(1))
    return prompts, batch["completion_mask"].sum(dim=1).clamp(min=least).tolist()


def _stand_in(batch: Batch, prompt_lengths: Sequence[int]) -> Batch:
    """Return one row without a token in the loss, as short as it can be: its loss and its gradient are exactly 0."""
    shortest = min(range(len(prompt_lengths)), key=lambda row: prompt_lengths[row])
    width = min(_MIN_WIDTH, batch["completion_ids"].size(1))
    row = select(batch, Part((shortest,), prompt_lengths[shortest], width))
    for name in (_LOGPS | {"advantages", "completion_mask"}) & row.keys():
        row[name] = torch.zeros_like(row[name])
    if "importance_sampling_ratio" in row:
        row["importance_sampling_ratio"] = torch.ones_like(row["importance_sampling_ratio"])
    return row


def count(batch: Batch, layout: Sequence[MicroBatch]) -> list[list[int]]:
    """Return for each micro-batch what its metrics are means over, on this process.

    Returns:
        Six counts each: tokens in the loss that are run, rows that are run, stand-ins among them; and of the whole
        optimizer step the tokens in the loss, the rows, and the rows with tokens in the loss that are left out.
    """
    mask_NT = loss_mask(batch)
    left_out = int(mask_NT.bool().any(dim=1).sum()) - sum(part.num_rows for part in layout)
    whole = [int(mask_NT.sum()), len(mask_NT), left_out]
    return [
        [
            int(loss_mask(part.inputs).sum()) if part.inputs else 0,
            part.num_rows + part.num_stand_ins,
            part.num_stand_ins,
            *whole,
        ]
        for part in layout
    ]
