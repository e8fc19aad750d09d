"""The chat template that prompts are written with: the tokenizer's or a file, with what the settings fix in it."""

from __future__ import annotations

import json

from transformers import PreTrainedTokenizerBase

from grpo_exp.data.chat_text import fix_template, read_chat_template
from grpo_exp.errors import ConfigError
from grpo_exp.settings.model import PretrainedModel
from grpo_exp.settings.pretrained_model import THINK


def set_template(tokenizer: PreTrainedTokenizerBase, settings: PretrainedModel, *, name: str) -> None:
    """Give a tokenizer its chat template.

    Variables and prefill are written into the template, so that all who write prompts with this tokenizer write the
    same ones: training, held-out evaluation, whoever loads the trained model. So is the date, for templates that ask
    for today's.

    Args:
        tokenizer: Changed in place.
        settings: Template, variables and prefill.
        name: How the user wrote the model, for messages.

    Raises:
        ConfigError: There is no template, it cannot be rendered, or it opens the reasoning without a word of it.
    """
    template = _read(settings) or tokenizer.chat_template
    if not isinstance(template, str):
        raise ConfigError(
            f"{name}: its tokenizer has no chat template, so prompts cannot be written; "
            "add chat_template.jinja to the folder, or give one with model.chat_template=FILE"
        )
    tokenizer.chat_template = fix_template(template, settings.chat_template_kwargs)
    prefill = settings.reasoning_prefill or ""
    end = _last_words(tokenizer, name)
    if prefill and not end.rstrip().endswith(prefill.strip()):
        tokenizer.chat_template += f"{{%- if add_generation_prompt %}}{{{{- {json.dumps(prefill)} }}}}{{%- endif %}}"
    elif not prefill and end.rstrip().endswith(THINK):
        raise ConfigError(
            f"{name}: its chat template ends with {THINK}, so that completions begin inside the reasoning, and "
            'model.reasoning_prefill is null; add model.reasoning_prefill="<think>\\n", which tells the rewards'
        )


def _read(settings: PretrainedModel) -> str | None:
    if settings.chat_template is None:
        return None
    try:
        return read_chat_template(settings.chat_template)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"model.chat_template={settings.chat_template}: cannot be read ({error}); give a file with a Jinja "
            "template, or plain"
        ) from error


def _last_words(tokenizer: PreTrainedTokenizerBase, name: str) -> str:
    """Return how a prompt ends."""
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "?"}], add_generation_prompt=True, tokenize=False
        )
    except Exception as error:  # Jinja's, and whatever a template of others raises
        raise ConfigError(
            f"{name}: its chat template cannot write a prompt ({type(error).__name__}: {error}); give another one with "
            "model.chat_template=FILE"
        ) from error
    return str(text)
