"""Behaviours are found in what a writer says of the own work, not in words that look alike, and in little time."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.evaluation.behaviours import BEHAVIOURS, behaviour_rates, find_behaviours

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "cases" / "behaviours.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:60])
def test_text_shows_these_behaviours_and_no_others(case: dict[str, Any]) -> None:
    """Sentences that were sorted by hand; `unlike` names the behaviour that a text only looks like."""
    assert sorted(find_behaviours(case["text"])) == sorted(case["behaviours"])


def test_each_behaviour_has_fifteen_sentences_of_either_sort() -> None:
    for name in BEHAVIOURS:
        assert sum(case["behaviours"] == [name] for case in CASES) >= 15
        assert sum(case.get("unlike") == name for case in CASES) >= 15


def test_snippet_is_the_hit_with_the_words_around_it_on_one_line() -> None:
    text = "a" * 100 + "\nSo x is 3. \n\nWait, that is the radius. " + "b" * 100
    snippet = find_behaviours(text)["reflection"]
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert "So x is 3. Wait, that is the radius. bb" in snippet
    assert len(snippet) <= 82
    assert find_behaviours("Hmm.") == {"reflection": "Hmm."}


def test_snippet_is_cut_out_of_the_text_as_it_was_written() -> None:
    """Case and apostrophes are kept, also behind the one letter whose lower case is two characters long."""
    assert find_behaviours("\u0130\u0130\u0130 LET\u2019S VERIFY this.") == {
        "self_verification": "\u0130\u0130\u0130 LET\u2019S VERIFY this."
    }


def test_no_other_letter_changes_its_length_in_lower_case() -> None:
    """Places in the lower-case text are places in the text."""
    letters = (chr(code) for code in range(sys.maxunicode + 1))
    assert [letter for letter in letters if len(letter.lower()) != 1] == ["\u0130"]


def test_rates_are_shares_of_texts() -> None:
    """Two of four texts wait, one of them twice; one is wrong."""
    rates = behaviour_rates(["Wait, no. Wait, yes.", "Wait, no. That's wrong.", "x", ""])
    assert rates == {"self_verification": 0.0, "reflection": 0.5, "backtracking": 0.25, "alternatives": 0.0}
    assert behaviour_rates([]) == {}


def fastest(text: str) -> float:
    """Return the least seconds of the processor of a few tries."""
    times = []
    for _ in range(3):
        started = time.thread_time()
        find_behaviours(text)
        times.append(time.thread_time() - started)
    return min(times)


def test_four_thousand_characters_take_well_under_a_millisecond() -> None:
    """Plain reasoning without a hit, so that all patterns are tried that can be."""
    sentence = "We first add the two numbers and then multiply by the third, which gives 12 times 7 and so 84. "
    assert fastest((sentence * 45)[:4000]) < 1e-3


HOSTILE = [
    "wait ", "let me let me just just ", "put ", "let me " + "a" * 39 + " ", "did i make a ", "another ",
    "check the a ",
    "a a different ", "```", "\n", " ", "-", "that is this is ", "but so and no hmm ", "let us put back instead check ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear_in_the_text_whatever_is_in_it(piece: str) -> None:
    """Eight times the text takes eight times the time; at most twenty is far from the 64 of a quadratic search."""
    short, long = (piece * (count // len(piece)) for count in (4_000, 32_000))
    assert fastest(long) < max(20 * fastest(short), 0.05)
