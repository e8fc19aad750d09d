"""Worked examples: what the policy is to write, made of a row and a template."""

from __future__ import annotations

import pytest

from grpo_exp.data.examples import build_examples
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.settings import load
from grpo_exp.settings.sft import SftSettings


def row(target: str | tuple[str, ...], solution: str | None) -> PromptRow:
    return PromptRow(build_prompt("q", None), target, solution=solution)


def completions(*rows: PromptRow, **fields: object) -> list[str]:
    settings = SftSettings.model_validate(fields)
    return [example.completion for example in build_examples(PromptData(rows, ()), settings)]


def test_default_template_reasons_and_boxes() -> None:
    assert completions(row("5", "2+3=5")) == ["<think>\n2+3=5\n</think>\n\n\\boxed{5}"]


def test_solution_is_put_in_as_it_stands() -> None:
    """A solution that holds the word of the other place is not filled in again."""
    assert completions(row("5", "the {target} of {solution}"), completion_template="{solution}|{target}") == [
        "the {target} of {solution}|5"
    ]


def test_rows_without_what_the_template_wants_are_left_out() -> None:
    rows = [row("1", None), row("2", "b"), row(("3", "three"), "c"), row("", "d")]
    assert completions(*rows, completion_template="{solution}={target}") == ["b=2", "c=3"]
    assert completions(*rows, completion_template="{target}") == ["1", "2", "3"]
    assert completions(*rows, completion_template="{solution}", num_examples=2) == ["b", "c"]


def test_no_example_at_all_is_refused() -> None:
    with pytest.raises(DataError, match=r"none of the 1 training rows has a worked solution; name its column"):
        completions(row("1", None))
    with pytest.raises(DataError, match=r"has an answer; write a template with \{solution\} alone"):
        completions(row("", "b"), row("", "c"))  # as TL;DR: what is solved there has no answer
    with pytest.raises(DataError, match=r"none of the 2 training rows has both a worked solution and an answer"):
        completions(row("1", None), row("", "b"))


def test_template_that_says_nothing_of_the_row_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sft.completion_template=fixed: holds neither \{solution\} nor \{target\}"):
        load.to_settings(load.compose(["sft.completion_template=fixed", "tracker=none"], primary="sft"))
