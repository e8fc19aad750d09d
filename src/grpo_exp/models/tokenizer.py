"""The built-in policy's tokenizer: one token per character, and one for each tag of the format."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, EOS, USER, ASSISTANT, UNKNOWN = "<pad>", "<eos>", "<user>", "<assistant>", "<unk>"
_SPECIAL = (PAD, EOS, USER, ASSISTANT, UNKNOWN)
_TAGS = ("<think>", "</think>", "\\boxed{")
_CHARACTERS = "0123456789+-*/=()., ?!:;'\"\n\\{}<>[]_^%$#&|~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<assistant>{{ message.content }}<eos>"
    "{% else %}<user>{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: about 100 tokens, with a chat template; characters outside it become `<unk>`."""
    vocabulary = {token: index for index, token in enumerate((*_SPECIAL, *_TAGS, *_CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tags = "|".join(tag.replace("\\", "\\\\").replace("{", "\\{") for tag in _TAGS)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{tags}|[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(_SPECIAL))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _CHAT_TEMPLATE
    return wrapped
