"""What the built-in policy can read, known without its tokenizer, which would import transformers.

A test holds this against the tokenizer itself.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

from grpo_exp.data.prompts import Message

ALPHABET = frozenset(string.ascii_letters + string.digits + "+-*/=()., ?!:;'\"\n\\{}<>[]_^%$#&|~")

#: Entries of its vocabulary: the alphabet, three tags of the format and five special tokens.
NUM_TOKENS = len(ALPHABET) + 3 + 5


def unreadable(text: str) -> str:
    """Return the characters of a text that become `<unk>`, each once, in order."""
    if ALPHABET.issuperset(text):  # nearly always, and ten times as fast
        return ""
    return "".join(dict.fromkeys(character for character in text if character not in ALPHABET))


def most_tokens(prompt: Iterable[Message]) -> int:
    """Return how many tokens a prompt has at most: one a character, and the tags of the chat template.

    Fewer where the text holds tags of the format, which are one token each.
    """
    tags = {"assistant": 2}  # <assistant> and <eos>; other roles have <user> alone
    return sum(len(message["content"]) + tags.get(message["role"], 1) for message in prompt) + 1


def longest_answer(max_operand: int) -> int:
    r"""Return the tokens of the longest right answer to a sum: `<think>29+29=58</think>\boxed{58}<eos>` has 15."""
    operand, result = len(str(max_operand)), len(str(2 * max_operand))
    equation = operand + 1 + operand + 1 + result
    return 1 + equation + 1 + 1 + result + 1 + 1
