"""Rendered prompts of the built-in policy, and one example of what it is primed on."""

from __future__ import annotations

from collections.abc import Callable

from grpo_exp.data.prompts import build_prompt
from grpo_exp.models.priming import _example
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import Priming


def test_rendered_prompts(check_golden: Callable[[str, str], None]) -> None:
    tokenizer = build_tokenizer()
    conversations = {
        "question": build_prompt("7+12?", None),
        "question with a system prompt": build_prompt("7+12?", "Think first, then box the answer."),
        "conversation": build_prompt(
            [
                {"role": "user", "content": "1+1?"},
                {"role": "assistant", "content": "<think>1+1=2</think>\\boxed{2}"},
                {"role": "user", "content": "7+12?"},
            ],
            None,
        ),
    }
    blocks = []
    for title, messages in conversations.items():
        plain = [dict(message) for message in messages]
        rendered = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        tokens = " ".join(repr(token) for token in tokenizer.convert_ids_to_tokens(tokenizer.encode(str(rendered))))
        blocks.append(f"# {title}\n{rendered}\n{tokens}\n")
    check_golden("prompts.txt", "\n".join(blocks))


def test_priming_examples(check_golden: Callable[[str, str], None]) -> None:
    """The first ten examples: a change here means that every cached policy is primed anew, and all numbers move."""
    tokenizer = build_tokenizer()
    lines = []
    for index in range(10):
        prompt, answer = _example(tokenizer, Priming(), index)
        lines.append(f"{tokenizer.decode(prompt)}{tokenizer.decode(answer)}\n")
    check_golden("priming.txt", "".join(lines))
