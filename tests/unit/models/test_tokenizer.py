"""One token per character and one per tag; a chat template that GRPO and priming share."""

from __future__ import annotations

import random

import pytest

from grpo_exp.models.tokenizer import ASSISTANT, EOS, PAD, UNKNOWN, USER, build_tokenizer

TOKENIZER = build_tokenizer()
TAGS = ("<think>", "</think>", "\\boxed{")
ALPHABET = "0123456789abcxyzABCXYZ+-*/=()., ?!:;'\"\n\\{}<>[]_^%$#&|~"


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def test_ids_are_numbered_without_a_gap() -> None:
    """The embedding has len(tokenizer) rows: a character listed twice would leave a hole and one id too high."""
    assert sorted(TOKENIZER.get_vocab().values()) == list(range(len(TOKENIZER)))


@pytest.mark.parametrize("tag", TAGS)
def test_tag_is_one_token(tag: str) -> None:
    assert len(ids(tag)) == 1
    assert len(ids(tag[:-1])) == len(tag) - 1  # cut by one letter it is spelled


def test_answer_is_split_as_expected() -> None:
    r"""<think>, 4, +, 5, =, 9, </think>, \boxed{, 9, }: ten tokens."""
    tokens = TOKENIZER.convert_ids_to_tokens(ids("<think>4+5=9</think>\\boxed{9}"))
    assert tokens == ["<think>", "4", "+", "5", "=", "9", "</think>", "\\boxed{", "9", "}"]


def test_text_comes_back_as_it_was() -> None:
    """300 random texts of characters and tags, blanks and line ends among them."""
    generator = random.Random(0)
    for _ in range(300):
        text = "".join(generator.choices([*ALPHABET, *TAGS], k=generator.randint(0, 40)))
        assert TOKENIZER.decode(ids(text)) == text


def test_nothing_is_added_and_blanks_are_kept() -> None:
    assert TOKENIZER.decode(ids("  a  , b .  \n")) == "  a  , b .  \n"
    assert TOKENIZER.encode("7") == ids("7")


def test_unknown_character_is_one_unknown_token() -> None:
    assert ids("7ß8") == [*ids("7"), TOKENIZER.unk_token_id, *ids("8")]


def test_special_tokens_are_five_and_different() -> None:
    numbers = {TOKENIZER.convert_tokens_to_ids(token) for token in (PAD, EOS, USER, ASSISTANT, UNKNOWN)}
    assert len(numbers) == 5
    assert (TOKENIZER.pad_token, TOKENIZER.eos_token, TOKENIZER.unk_token) == (PAD, EOS, UNKNOWN)
    assert TOKENIZER.pad_token_id != TOKENIZER.eos_token_id
    assert TOKENIZER.bos_token is None
    assert TOKENIZER.padding_side == "left"


def test_decoding_without_special_tokens_leaves_the_tags() -> None:
    text = "<think>1</think>\\boxed{1}"
    assert (
        TOKENIZER.decode([*ids(text), TOKENIZER.eos_token_id, TOKENIZER.pad_token_id], skip_special_tokens=True) == text
    )


def test_prompt_is_rendered_with_the_turn_of_the_assistant_open() -> None:
    messages = [{"role": "user", "content": "2+3?"}]
    assert (
        TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == "<user>2+3?<assistant>"
    )
    assert TOKENIZER.apply_chat_template(messages, tokenize=False) == "<user>2+3?"


def test_conversation_closes_each_answer() -> None:
    messages = [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "2+3?"},
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "1+1?"},
    ]
    rendered = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "<user>Add.<user>2+3?<assistant>5<eos><user>1+1?<assistant>"


def test_saved_tokenizer_is_the_same(tmp_path: object) -> None:
    from transformers import AutoTokenizer

    TOKENIZER.save_pretrained(str(tmp_path))
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    assert loaded.encode("<think>4</think>x") == ids("<think>4</think>x")
    assert loaded.chat_template == TOKENIZER.chat_template
    assert loaded.padding_side == "left"
