"""One pass over a generated batch for log-probabilities, in chunks of one length each; rows keep their places."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from grpo_exp.backends.trl.length_budget import divide

# Shapes: N rows, B rows of a chunk, P prompt tokens, T completion tokens.

#: From ids, attention mask (both (B, P+T)) and T to log-probabilities and entropies (or None), both (B, T).
Compute = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor | None]]


def in_length_order(
    compute: Compute, input_ids: Tensor, attention_mask: Tensor, *, width: int, num_chunks: int, cut_prompts: bool
) -> tuple[Tensor, Tensor | None]:
    """Run rows of one length together, without the padding that they do not need.

    Args:
        compute: The pass over a chunk.
        input_ids: Prompts, padded on the left, and completions, padded on the right; (N, P+T).
        attention_mask: 0 at padding; (N, P+T).
        width: T.
        num_chunks: How often `compute` is called, at most N: equally often on all processes.
        cut_prompts: Cut the padding of prompts, too.

    Returns:
        Log-probabilities and entropies, (N, T), in the order of the rows; 0 at padding, as TRL has it.
    """
    prompt_width = input_ids.size(1) - width
    own_N = attention_mask[:, :prompt_width].sum(dim=1).tolist()
    prompts = own_N if cut_prompts else [prompt_width] * len(input_ids)
    completions = attention_mask[:, prompt_width:].sum(dim=1).clamp(min=1).tolist()
    results: list[Tensor | None] = [None, None]
    for part in divide(prompts, completions, range(len(input_ids)), num_chunks):
        index_B = torch.tensor(part.rows, device=input_ids.device)
        columns = slice(prompt_width - part.prompt_width, prompt_width + part.completion_width)
        found = compute(input_ids[index_B, columns], attention_mask[index_B, columns], part.completion_width)
        for place, value_BT in enumerate(found):
            if value_BT is None:
                continue
            target_NT = results[place]
            if target_NT is None:
                target_NT = results[place] = value_BT.new_zeros((len(input_ids), width))
            target_NT[index_B, : part.completion_width] = value_BT
    logps_NT, entropies_NT = results
    assert logps_NT is not None  # a batch has rows
    return logps_NT, entropies_NT
