"""The template that prompts are written with: fixed variables, a prefill, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.data.chat_text import build_renderer, fix_template, read_chat_template
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt, mark_prefilled
from grpo_exp.errors import ConfigError
from grpo_exp.models.chat_template import set_template
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import build_components
from grpo_exp.settings import load
from grpo_exp.settings.absolute_paths import absolute_paths
from grpo_exp.settings.model import LocalModel

#: As the built-in policy's; a model that thinks opens the reasoning unless it is told not to.
THINKING = (
    "{% for message in messages %}<user>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{% endif %}"
)
PLAIN = "{% for m in messages %}<user>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def prompt_of(template: str | None, **settings: Any) -> str:
    """Return the prompt that a tokenizer writes when its template has been set."""
    tokenizer = build_tokenizer()
    tokenizer.chat_template = template
    model = LocalModel.model_validate({"kind": "local", "path": "m", **settings})
    set_template(tokenizer, model, name="model.path=m")
    return str(
        tokenizer.apply_chat_template([{"role": "user", "content": "1+1?"}], add_generation_prompt=True, tokenize=False)
    )


def test_template_of_the_tokenizer_stays_as_it_is() -> None:
    assert prompt_of(PLAIN) == "<user>1+1?<assistant>"


def test_variables_are_written_into_the_template() -> None:
    assert prompt_of(THINKING, chat_template_kwargs={"enable_thinking": False}) == "<user>1+1?<assistant>"
    template = "{{ mood }} {{ count }} {{ 'yes' if flag else 'no' }}"
    values = {"mood": 'say "hi"', "count": 3, "flag": True}
    assert prompt_of(template, chat_template_kwargs=values) == 'say "hi" 3 yes'


def test_variables_of_the_settings_win_over_those_of_a_saved_template() -> None:
    """A run saves its template with its values in it; a run that begins with its weights may want other ones."""
    values: dict[str, Any] = {"enable_thinking": False, "mood": "a %} b", "count": 2}
    template = THINKING + "{{ mood }}{{ count }}"
    saved = fix_template(template, values)
    again = prompt_of(saved, chat_template_kwargs={"enable_thinking": True}, reasoning_prefill="<think>\n")
    assert again == prompt_of(template, chat_template_kwargs={**values, "enable_thinking": True},
                              reasoning_prefill="<think>\n")  # fmt: skip
    assert "<assistant><think>" in again
    assert fix_template(saved, values) == saved
    own = "{%- set mood = messages %}{{ mood }}"
    assert fix_template(own, {"count": 1}) == "{%- set count = 1 %}" + own  # an expression is the template's own


@pytest.mark.parametrize("call", ['strftime_now("%d %b %Y")', "strftime_now( '%d %b %Y' )"])
def test_prompts_are_the_same_on_every_day(call: str) -> None:
    """As Llama 3.2 does: the day of `date_string`, else today; a run that goes on tomorrow has the same prompts."""
    template = (
        "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = CALL %}"
        '{%- else %}{%- set date_string = "no clock" %}{%- endif %}{%- endif %}Today: {{ date_string }}'
    ).replace("CALL", call)
    assert prompt_of(template) == "Today: 26 Jul 2024"
    assert prompt_of(template, chat_template_kwargs={"date_string": "01 Jan 2025"}) == "Today: 01 Jan 2025"


def test_prefill_is_added_where_the_template_does_not_end_with_it() -> None:
    assert prompt_of(PLAIN, reasoning_prefill="<think>\n") == "<user>1+1?<assistant><think>\n"
    assert prompt_of(THINKING, reasoning_prefill="<think>\n") == "<user>1+1?<assistant><think>\n"


def test_template_that_opens_the_reasoning_must_be_told_to_the_rewards() -> None:
    with pytest.raises(ConfigError, match=r"ends with <think>.*add model\.reasoning_prefill="):
        prompt_of(THINKING)


def test_template_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("Q: {{ messages[0].content }}\nA:")
    assert prompt_of(None, chat_template=str(tmp_path / "mine.jinja")) == "Q: 1+1?\nA:"


@pytest.mark.parametrize(("template", "why"), [(None, "has no chat template"), ("{{ nothing.at.all }}", "cannot write"),
                                               ("{% if %}", "cannot write")])  # fmt: skip
def test_template_that_is_missing_or_broken(template: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.path=m: its .*{why}.*model\.chat_template=FILE"):
        prompt_of(template)


@pytest.mark.parametrize(
    ("prefill", "opens"), [(None, False), ("<think>", True), ("<think>\n", True), ("<think>\n\n</think>\n\n", False)]
)
def test_what_opens_the_reasoning(prefill: str | None, opens: bool) -> None:
    model = LocalModel.model_validate({"kind": "local", "path": "m", "reasoning_prefill": prefill})
    assert model.opens_reasoning is opens


def test_rewards_of_a_prefilled_prompt_do_not_miss_the_opening_tag() -> None:
    """The same completion is malformed behind a plain prompt."""
    settings = load.to_settings(load.compose(["reward=r1"]))
    rows = (
        PromptRow(build_prompt("1+1?", None), "2"),
        PromptRow(build_prompt("1+1?", None), "2", {"prefilled": False}),
    )
    data = mark_prefilled(PromptData(rows, rows))
    assert [row.columns["prefilled"] for row in (*data.train, *data.evaluation)] == [True, False, True, False]
    component = next(c for c in build_components(settings.reward) if c.name == "format")
    completion = [{"role": "assistant", "content": "1+1=2</think><answer>2</answer>"}]
    columns = {"prefilled": [True, False], "target": ["2", "2"]}
    first, second = component.score([completion, completion], columns)
    assert (first.value, second.value) == (1.0, 0.0), json.dumps([first.reason, second.reason])


def test_plain_writes_the_text_and_nothing_else(tmp_path: Path) -> None:
    """Whatever the tokenizer has; in training and where tokens are counted. It is no file of the folder."""
    assert prompt_of(THINKING, chat_template="plain") == "1+1?"
    render = build_renderer(read_chat_template("plain"), {})
    assert render([{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]) == "Add.\n\n1+1="
    settings = load.to_settings(load.compose(["model=local", f"model.path={tmp_path}", "model.chat_template=plain"]))
    model = absolute_paths(settings, tmp_path).model
    assert isinstance(model, LocalModel)
    assert model.chat_template == "plain"
