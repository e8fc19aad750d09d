"""Tokens counted without torch are those that the model gets: held against transformers."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from grpo_exp.data.prompt_tokens import build_counter
from grpo_exp.data.prompts import Message
from grpo_exp.errors import ConfigError
from grpo_exp.models.chat_template import set_template
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import LocalModel, TinyModel

CONVERSATIONS: list[list[Message]] = [
    [{"role": "user", "content": "2+3?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Zahl é 数 {}\n\n x"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>b</think>\\boxed{c}"},
        {"role": "user", "content": "d"},
    ],
]
#: ChatML with a default system message, as Qwen2.5 has it; and a form with loops, filters and the names of tokens.
TEMPLATES = {
    "chatml": (
        "{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}\n"
        "{%- for message in messages %}\n"
        "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "loops": (
        "{{ bos_token }}{% for message in messages %}{% if message.content | length == 0 %}{% continue %}{% endif %}"
        "{% if not loop.first %}\n{% endif %}[{{ message.role | upper }}] {{ message.content | trim }}{{ eos_token }}"
        "{% endfor %}{% if tools is not none %}{{ raise_exception('none') }}{% endif %}"
        "{% if add_generation_prompt %}[ASSISTANT]{% endif %}"
    ),
    # Marks around what is learned, as in templates for training: they write nothing, and take blanks as they say.
    "marks": (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.role == 'assistant' %}  {%- generation %} {{ message.content }} {% endgeneration -%}\n  "
        "{% else %}{{ message.content }}{% endif %}<|im_end|>{% endfor %}"
    ),
}


def save_tokenizer(folder: Path, template: str) -> Path:
    """Save a tokenizer of bytes with special tokens, as transformers does."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(sorted(alphabet))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_folder_of_a_model_gives_the_counts_of_transformers(name: str, tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path, TEMPLATES[name])
    reference = AutoTokenizer.from_pretrained(folder)
    expected = [
        len(
            reference.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)[
                "input_ids"
            ]
        )
        for messages in CONVERSATIONS
    ]
    counter = build_counter(LocalModel(kind="local", path=str(folder)))
    assert counter.count(CONVERSATIONS) == expected
    assert min(expected) > 10  # the special tokens are one each, and something was counted


def test_template_of_the_settings_its_variables_and_the_opening_of_the_reasoning_count(tmp_path: Path) -> None:
    """As the run's own tokenizer has them: a file, a switch that adds a word, and `<think>` behind the prompt."""
    folder = save_tokenizer(tmp_path / "model", TEMPLATES["loops"])
    (tmp_path / "other.jinja").write_text(
        TEMPLATES["chatml"] + "{%- if enable_thinking is false %}{{- 'briefly' }}{% endif %}"
    )
    settings = LocalModel.model_validate(
        {"kind": "local", "path": str(folder), "chat_template": str(tmp_path / "other.jinja"),
         "chat_template_kwargs": {"enable_thinking": False}, "reasoning_prefill": "<think>\n"}
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    set_template(tokenizer, settings, name="model")
    expected = [
        len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
        for messages in CONVERSATIONS
    ]
    assert build_counter(settings).count(CONVERSATIONS) == expected
    plain = build_counter(LocalModel(kind="local", path=str(folder))).count(CONVERSATIONS)
    assert plain != expected


def test_values_in_a_saved_template_give_way_to_those_of_the_settings(tmp_path: Path) -> None:
    """A folder that a run has saved says `briefly`; the settings say the opposite, and the run does as they say."""
    template = TEMPLATES["chatml"] + "{%- if enable_thinking is false %}{{- 'briefly' }}{% endif %}"
    plain = build_counter(LocalModel(kind="local", path=str(save_tokenizer(tmp_path / "plain", template))))
    folder = save_tokenizer(tmp_path / "saved", "{%- set enable_thinking = false %}" + template)
    saved = LocalModel.model_validate(
        {"kind": "local", "path": str(folder), "chat_template_kwargs": {"enable_thinking": True}}
    )
    assert build_counter(saved).count(CONVERSATIONS) == plain.count(CONVERSATIONS)


def test_template_inside_the_old_file_is_found(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path, TEMPLATES["chatml"])
    expected = build_counter(LocalModel(kind="local", path=str(folder))).count(CONVERSATIONS)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for form in (template, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": template}]):
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": form}))
        assert build_counter(LocalModel(kind="local", path=str(folder))).count(CONVERSATIONS) == expected


def test_identity_changes_with_the_template(tmp_path: Path) -> None:
    folders = [save_tokenizer(tmp_path / name, template) for name, template in TEMPLATES.items()]
    identities = {build_counter(LocalModel(kind="local", path=str(folder))).identity for folder in folders}
    assert len(identities) == len(TEMPLATES)


def test_folder_without_what_is_needed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no tokenizer.json.*use dataset.max_prompt_length=null"):
        build_counter(LocalModel(kind="local", path=str(tmp_path)))
    folder = save_tokenizer(tmp_path / "model", "{{ raise_exception('no system') }}")
    with pytest.raises(ConfigError, match="its chat template refuses a prompt: no system"):
        build_counter(LocalModel(kind="local", path=str(folder))).count(CONVERSATIONS)
    (folder / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match="its chat template cannot be read"):
        build_counter(LocalModel(kind="local", path=str(folder)))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="it has no chat template"):
        build_counter(LocalModel(kind="local", path=str(folder)))


TINY = build_tokenizer()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant"]),
            st.lists(st.sampled_from([*string.printable, "<think>", "</think>", "\\boxed{", "é"])).map("".join),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_built_in_policy_gives_the_counts_of_its_tokenizer(parts: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": content} for role, content in parts]
    text = TINY.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    expected = len(TINY.encode(str(text), add_special_tokens=False))
    assert build_counter(TinyModel(kind="tiny")).count([messages]) == [expected]
