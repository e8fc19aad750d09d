"""Answers that need no algebra: where they stand, and what they may be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_exp.rewards.answer_sources import extract_answer, extract_gsm8k
from grpo_exp.rewards.components import RewardComponent, build_components
from grpo_exp.rewards.extraction import Extraction
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import RewardSettings


def component(**fields: Any) -> RewardComponent:
    (built,) = build_components(RewardSettings.model_validate({"components": {"correctness": fields}}))
    return built


def score(completion: Any, target: Any, **fields: Any) -> Score:
    (result,) = component(**fields).score([completion], {"target": [target]})
    return result


# ------------------------------------------------------------------------------------------ where it stands


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        (r"so \boxed{7}", "box", Extraction("7")),
        ("<answer>1</answer> no, <answer> 2 </answer>", "answer_tag", Extraction("2")),
        ("<answer>1</answer> <answer>2", "answer_tag", Extraction(None, "cut_answer_tag")),
        ("it is 2", "answer_tag", Extraction(None, "no_answer_tag")),
        ("<answer> </answer>", "answer_tag", Extraction(None, "empty_answer")),
        ("<think><answer>1</answer></think>2", "answer_tag", Extraction(None, "no_answer_tag")),
        ("first\n\n last one \n\n", "last_line", Extraction("last one")),
        ("<think>a</think>\nb\nc", "last_line", Extraction("c")),
        ("<think>a\nb", "last_line", Extraction(None, "unclosed_reasoning")),
        ("<think>a</think>  ", "last_line", Extraction(None, "empty_answer")),
        ("<think>a</think>\nb\nc ", "after_reasoning", Extraction("b\nc")),
        ("b</think>", "after_reasoning", Extraction(None, "empty_answer")),
    ],
)
def test_answer_is_taken_from_its_place_behind_the_reasoning(text: str, source: Any, expected: Extraction) -> None:
    assert extract_answer(text, source) == expected


def test_text_that_starts_inside_the_reasoning_has_no_answer_before_its_end() -> None:
    assert extract_answer("b", "last_line", reasoning_open=True) == Extraction(None, "unclosed_reasoning")
    assert extract_answer("b</think>c", "last_line", reasoning_open=True) == Extraction("c")


# ------------------------------------------------------------------------------------------ gsm8k


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3+4=7\n#### 7", Extraction("7")),
        ("#### 7\nand then some", Extraction("7")),
        ("#### 1\n#### 2", Extraction("2")),
        ("<think>#### 1</think>2", Extraction(None, "no_marker")),
        ("####  \n5", Extraction(None, "empty_answer")),
        ("<think>#### 1", Extraction(None, "unclosed_reasoning")),
    ],
)
def test_gsm8k_answer_follows_the_last_marker(text: str, expected: Extraction) -> None:
    assert extract_gsm8k(text) == expected


@pytest.mark.parametrize(
    ("completion", "target", "expected"),
    [
        ("so\n#### 1,450", "a solution\n#### 1450", Score(1.0, "match")),
        ("so\n#### $18", 18, Score(1.0, "match")),
        ("so\n#### 18.0", "18", Score(1.0, "match")),
        ("so\n#### 19", "18", Score(0.0, "mismatch")),
        ("so\n#### 18 or 19", "18", Score(0.0, "mismatch")),
        ("so\n#### 9+9", "18", Score(0.0, "unevaluated")),
        (r"so \boxed{18}", "18", Score(0.0, "no_marker")),
        ("", "18", Score(0.0, "empty_completion")),
        ("#### 18", None, Score(None, "no_target")),
    ],
)
def test_gsm8k_compares_as_math_does(completion: str, target: Any, expected: Score) -> None:
    assert score(completion, target, kind="gsm8k") == expected


# ------------------------------------------------------------------------------------------ letter


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("B", Score(1.0, "match")),
        ("(b)", Score(1.0, "match")),
        ("B.", Score(1.0, "match")),
        ("**B**", Score(1.0, "match")),
        (r"\textbf{(B)}", Score(1.0, "match")),
        ("Answer: B", Score(1.0, "match")),
        ("The correct answer is (B).", Score(1.0, "match")),
        ("C", Score(0.0, "mismatch")),
        ("B or C", Score(0.0, "not_a_letter")),
        ("ABCD", Score(0.0, "not_a_letter")),
        ("B) Paris", Score(0.0, "not_a_letter")),
        ("not B", Score(0.0, "not_a_letter")),
        ("b" * 10_000, Score(0.0, "not_a_letter")),
    ],
)
def test_letter_must_stand_alone(answer: str, expected: Score) -> None:
    assert score(answer, "(B)", kind="letter", source="last_line") == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("Paris", Score(None, "unparsable_target")),
        ("", Score(None, "no_target")),
        (None, Score(None, "no_target")),
        (["B", "C"], Score(1.0, "match")),
        (3, Score(None, "unparsable_target")),
    ],
)
def test_target_of_a_letter_is_a_letter(target: Any, expected: Score) -> None:
    assert score(r"\boxed{C}", target, kind="letter") == expected


def test_row_without_a_target_is_unjudgeable_even_where_there_is_no_answer() -> None:
    """Else a row would be trained on as wrong only when the policy is silent."""
    assert score("no box", None, kind="letter") == Score(None, "no_target")
    assert score("no box", "B", kind="letter") == Score(0.0, "no_box")


# ------------------------------------------------------------------------------------------ exact


@pytest.mark.parametrize(
    ("answer", "fields", "value"),
    [
        ("New  York\n", {}, 1.0),
        ("new york", {}, 0.0),
        ("new york", {"ignore_case": True}, 1.0),
        ("New  York", {"collapse_blanks": False}, 0.0),
        (" New York ", {"collapse_blanks": False}, 1.0),
        ("New York or Paris", {}, 0.0),
    ],
)
def test_exact_text(answer: str, fields: dict[str, Any], value: float) -> None:
    assert score(answer, "New York", kind="exact", source="after_reasoning", **fields).value == value


def test_exact_takes_any_of_the_accepted_spellings_and_numbers_as_text() -> None:
    assert score(r"\boxed{7}", ["six", 7], kind="exact").value == 1.0
    assert score(r"\boxed{7.0}", 7, kind="exact").value == 0.0
    assert score(r"\boxed{7}", " ", kind="exact") == Score(None, "no_target")


# ------------------------------------------------------------------------------------------ numeric


@pytest.mark.parametrize(
    ("answer", "target", "fields", "expected"),
    [
        ("3.14", "3.1", {}, Score(0.0, "mismatch")),
        # |3.2 - 3.1| = 0.1: exactly the tolerance as it is written, though not in binary
        ("3.2", "3.1", {"absolute_tolerance": 0.1}, Score(1.0, "match")),
        ("3.2000001", "3.1", {"absolute_tolerance": 0.1}, Score(0.0, "mismatch")),
        # 1 % of 200 is 2
        ("202", "200", {"relative_tolerance": 0.01}, Score(1.0, "match")),
        ("202.01", "200", {"relative_tolerance": 0.01}, Score(0.0, "mismatch")),
        ("-202", "-200", {"relative_tolerance": 0.01}, Score(1.0, "match")),
        # the wider of the two counts: max(0.5, 0.01 * 10 = 0.1)
        ("10.5", 10, {"relative_tolerance": 0.01, "absolute_tolerance": 0.5}, Score(1.0, "match")),
        (r"\frac{1}{3}", "0.33", {"absolute_tolerance": 0.01}, Score(1.0, "match")),
        ("1,000", 1000.0, {}, Score(1.0, "match")),
        (r"5\text{ cm}", r"5\text{ m}", {}, Score(0.0, "wrong_unit")),
        (r"5\text{ cm}", "5", {}, Score(1.0, "match")),
        ("about 5", "5", {"relative_tolerance": 1.0}, Score(0.0, "not_a_number")),
        ("4 to 6", "5", {"relative_tolerance": 1.0}, Score(0.0, "not_a_number")),
        ("2+3", "5", {}, Score(0.0, "not_a_number")),
        ("nan", "5", {"relative_tolerance": 1.0}, Score(0.0, "not_a_number")),
        ("5", "five", {}, Score(None, "unparsable_target")),
        ("5", float("nan"), {}, Score(None, "no_target")),
        ("5", ["4", "5"], {}, Score(1.0, "match")),
    ],
)
def test_numeric_distance(answer: str, target: Any, fields: dict[str, Any], expected: Score) -> None:
    assert score(answer, target, kind="numeric", source="after_reasoning", **fields) == expected


# ------------------------------------------------------------------------------------------ regex


@pytest.mark.parametrize(
    ("answer", "target", "pattern", "whole", "expected"),
    [
        ("id-42", None, r"id-\d+", True, Score(1.0, "match")),
        ("my id-42", None, r"id-\d+", True, Score(0.0, "no_match")),
        ("my id-42", None, r"id-\d+", False, Score(1.0, "match")),
        ("Answer: 42 ", "42", r"Answer:(?P<answer>.*)", True, Score(1.0, "match")),
        ("Answer: 43", "42", r"Answer:(?P<answer>.*)", True, Score(0.0, "mismatch")),
        ("Answer: 43", ["42", "43"], r"Answer:(?P<answer>.*)", True, Score(1.0, "match")),
        ("Answer: 43", None, r"Answer:(?P<answer>.*)", True, Score(None, "no_target")),
        ("x" * 100_001, None, "x*", True, Score(0.0, "too_long")),
    ],
)
def test_pattern(answer: str, target: Any, pattern: str, whole: bool, expected: Score) -> None:
    fields = {"kind": "regex", "source": "after_reasoning", "pattern": pattern, "whole": whole}
    assert score(answer, target, **fields) == expected


def test_pattern_that_backtracks_forever_is_a_time_out() -> None:
    """`(a+)+` on 40 a's and a b tries 2**40 ways; the next answer is judged again."""
    settings = RewardSettings.model_validate(
        {
            "components": {"correctness": {"kind": "regex", "source": "after_reasoning", "pattern": "(a+)+"}},
            "engine": {"timeout_seconds": 1.0, "num_workers": 1},
        }
    )
    (built,) = build_components(settings)
    assert built.score(["a"], {}) == [Score(1.0, "match")]  # the checkers have loaded
    started = time.monotonic()
    assert built.score(["a" * 40 + "b", "aaa", "b"], {}) == [
        Score(0.0, "timeout"),
        Score(1.0, "match"),
        Score(0.0, "no_match"),
    ]
    assert time.monotonic() - started < 5


def test_pattern_without_a_group_needs_no_target_column() -> None:
    built = component(kind="regex", pattern="a", source="after_reasoning")
    assert built.score(["a"], {}) == [Score(1.0, "match")]


def test_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="is no regular expression"):
        component(kind="regex", pattern="(")
