"""What is kept of a completion, and of which ones."""

from __future__ import annotations

import pytest

from grpo_exp.evaluation.completion_rows import (
    CompletionRow,
    choose_groups,
    completion_text,
    cut_middle,
    held_out_rows,
    limited,
    most_telling,
    prompt_text,
)
from grpo_exp.rewards.score import Score


def row(group: int = 0, reward: float | None = 1.0, **changes: object) -> CompletionRow:
    fields = {"prompt": "1+1?", "completion": "2", "target": "2", "scores": {"correctness": Score(1.0, "match")},
              "reward": reward, "length": 3, "truncated": False, "group": group}  # fmt: skip
    return CompletionRow(**{**fields, **changes})  # type: ignore[arg-type]


def test_prompt_of_one_message_is_its_text_and_several_have_their_roles() -> None:
    assert prompt_text([{"role": "user", "content": "1+1?"}]) == "1+1?"
    assert prompt_text("plain") == "plain"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    assert prompt_text(messages) == "[system] Be brief.\n\n[user] 1+1?"


def test_reasoning_that_a_chat_format_keeps_apart_is_part_of_the_completion() -> None:
    assert completion_text([{"role": "assistant", "content": "2"}]) == "2"
    assert completion_text([{"role": "assistant", "content": "2", "reasoning_content": "1 and 1"}]) == "1 and 1\n\n2"
    assert completion_text(None) == ""


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 6, "abc[... 4 characters left out ...]hij"),
        ("abcdefghij", 5, "abc[... 5 characters left out ...]ij"),
        ("abcdefghij", 1, "a[... 9 characters left out ...]"),
        ("", 5, ""),
    ],
)
def test_long_text_keeps_its_ends_and_says_what_is_missing(text: str, limit: int, expected: str) -> None:
    assert cut_middle(text, limit) == expected


def test_every_text_of_a_row_is_cut_and_long_columns_are_left_out() -> None:
    columns = {"short": '"x"', "long": '"' + "x" * 10 + '"'}
    cut = limited(row(prompt="p" * 10, completion="c" * 10, target=["t" * 10, "u"], columns=columns), 4)
    assert cut.prompt == "pp[... 6 characters left out ...]pp"
    assert cut.completion == "cc[... 6 characters left out ...]cc"
    assert cut.target == ["tt[... 6 characters left out ...]tt", "u"]
    assert cut.columns == {"short": '"x"'}
    assert cut.characters_left_out == 6
    assert limited(row(), 4).characters_left_out == 0
    assert limited(row(columns=columns), 4, keep_columns=True).columns == columns


def test_groups_reach_evenly_from_the_worst_to_the_best() -> None:
    """Means 5, 3, 1, 4, 2, 6, 0: in their order groups 6 2 4 1 3 0 5; three of them stand at places 0, 3 and 6."""
    means = {group: [float(mean)] for group, mean in enumerate((5, 3, 1, 4, 2, 6, 0))}
    assert choose_groups(means, 3) == [1, 5, 6]
    assert choose_groups(means, 2) == [5, 6]
    assert choose_groups(means, 1) == [6]
    assert choose_groups(means, 0) == []
    assert choose_groups(means, 7) == choose_groups(means, 99) == list(range(7))
    # Five of seven: places 0, 6 // 4 = 1, 12 // 4 = 3, 18 // 4 = 4 and 6.
    assert choose_groups(means, 5) == [1, 2, 3, 5, 6]


def test_equal_groups_go_by_their_number_and_those_that_cannot_be_judged_come_last() -> None:
    assert choose_groups({0: [None], 1: [1.0, 0.0], 2: [0.5, None], 3: [0.5, 0.5]}, 2) == [0, 1]


def test_rows_are_those_of_whole_groups() -> None:
    """4 groups of 3 rows; 7 rows are room for two groups, the worst and the best."""
    rows = [row(group, float(group % 3)) for group in range(4) for _ in range(3)]
    assert [one.group for one in most_telling(rows, max_rows=7)] == [0, 0, 0, 2, 2, 2]
    assert most_telling(rows, max_rows=12) == rows
    assert [one.group for one in most_telling(rows, max_rows=1)] == [0, 0, 0]


def test_held_out_rows_have_reward_group_and_further_columns() -> None:
    """1.0 x 1 + 0.5 x 0.4 = 1.2; without a value of the judged component there is no reward."""
    sample = {"prompt": [{"role": "user", "content": "q"}], "target": "2", "tests": [1], "completion": "Wait, 2",
              "num_tokens": 5, "truncated": True}  # fmt: skip
    values = [(1.0, 0.4), (None, 0.4), (0.0, None)]
    samples = [
        {**sample, "components": {"correctness": {"value": a, "reason": "r"}, "format": {"value": b, "reason": "s"}}}
        for a, b in values
    ]
    weights = {"correctness": 1.0, "format": 0.5}
    rows = held_out_rows(samples, num_samples=2, weights=weights, primary="correctness")
    assert [one.reward for one in rows] == [pytest.approx(1.2), None, 0.0]
    assert [one.group for one in rows] == [0, 0, 1]
    assert rows[0].columns == {"tests": "[1]"}
    assert rows[0].behaviours == {"reflection": "Wait, 2"}
    assert (rows[0].prompt, rows[0].length, rows[0].truncated, rows[0].advantage, rows[0].kept) == (
        "q", 5, True, None, None
    )  # fmt: skip
