"""Worked examples as tokens: the prompt as GRPO writes it, then the completion and the end of the turn."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from grpo_exp.data.prompts import Message


def encode_example(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], completion: str
) -> tuple[list[int], list[int]]:
    """Return the tokens of prompt and completion; only those of the completion are learned.

    Not by the chat template for both: some drop the reasoning of an assistant's turn. What the prompt opens already
    (`<think>`) is not written twice.
    """
    messages = [dict(message) for message in prompt]
    text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    opened = completion.partition("\n")[0].strip()
    if opened.startswith("<") and opened.endswith(">") and text.rstrip().endswith(opened):
        completion = completion[completion.index(opened) + len(opened) :].lstrip("\n")
    return (
        tokenizer.encode(text, add_special_tokens=False),
        tokenizer.encode(f"{completion}{tokenizer.eos_token}", add_special_tokens=False),
    )
