"""How many tokens a forward pass and a generation hold, at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

from grpo_exp.data.prompts import PromptData, PromptRow
from grpo_exp.preflight.model_files import context_length
from grpo_exp.preflight.tiny_text import most_tokens
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.run import RunSettings

#: Characters of a token, taken low: English has about four, formulas and code fewer.
_CHARACTERS_PER_TOKEN = 3
#: What the tags of a chat template and a system prompt of its own take.
_TEMPLATE_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sizes of the largest batches on one process; every row is taken to be as long as the longest."""

    rows: int
    """Completions in one forward and backward pass."""
    generated_rows: int
    """Completions that one process generates at once."""
    prompt: int
    """Tokens of the longest prompt."""
    completion: int
    """Tokens of the longest completion."""

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return self.prompt + self.completion

    @property
    def total(self) -> int:
        """Tokens of one forward and backward pass."""
        return self.rows * self.length


def count_tokens(settings: RunSettings, batch: BatchPlan, prompt_tokens: int | None) -> Tokens:
    """Return the largest batches of a run; a prompt of unknown length is taken to be half the longest completion."""
    completion = settings.trainer.max_completion_length
    prompt = completion // 2 if prompt_tokens is None else prompt_tokens
    limit = context_length(settings.model)
    if limit is not None:
        prompt = min(prompt, max(1, limit - completion))
    generated = batch.per_device_train_batch_size * batch.steps_per_generation
    return Tokens(batch.per_device_train_batch_size, generated, prompt, completion)


def longest_prompt(settings: RunSettings, data: PromptData) -> int:
    """Return about how many tokens the longest prompt has, from its characters: no tokenizer is loaded."""
    rows = (*data.train, *data.evaluation)
    if settings.model.kind == "tiny":
        return max(most_tokens(row.prompt) for row in rows)
    return max(_guess(row) for row in rows)


def _guess(row: PromptRow) -> int:
    characters = sum(len(message["content"]) for message in row.prompt)
    return math.ceil(characters / _CHARACTERS_PER_TOKEN) + _TEMPLATE_TOKENS
