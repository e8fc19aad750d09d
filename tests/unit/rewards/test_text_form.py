"""Repetition, script and style, counted by hand."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest

from grpo_exp.rewards.score import Score
from grpo_exp.rewards.text_form import score_language, score_repetition, score_text_quality
from grpo_exp.settings.reward import LanguageComponent, TextQualityComponent


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a b c d e", 0.0),  # abc bcd cde
        ("a b a b a b", -0.5),  # aba bab aba bab: 2 of 4 are different
        ("A b a B a b", -0.5),  # capitals do not hide it
        ("go go go go go go go", -0.8),  # 5 times the same: 1/5 - 1
        ("a b", 0.0),  # too few words for one
        ("", 0.0),
        ("x" * 1000, -47 / 48),  # 50 pieces of 20: 48 trigrams, all the same
        ("!!!!!", -2 / 3),  # 3 trigrams of signs, all the same
    ],
)
def test_share_of_trigrams_that_come_again(text: str, value: float) -> None:
    score = score_repetition(text, ngram_size=3)
    assert score.value == pytest.approx(value)
    assert score.reason == ("repetition" if value else "no_repetition")


def test_size_of_the_ngram_counts() -> None:
    assert score_repetition("a b a b", ngram_size=2).value == pytest.approx(2 / 3 - 1)  # ab ba ab
    assert score_repetition("a b a b", ngram_size=4).value == 0.0


def test_repetition_looks_at_the_reasoning_too() -> None:
    message = [{"role": "assistant", "reasoning_content": "go go go go", "content": "7"}]
    # go go go go 7: ggg ggg gg7, 2 of 3 are different
    assert score_repetition(message, ngram_size=3).value == pytest.approx(-1 / 3)


# ------------------------------------------------------------------------------------------ language


def language(text: Any, *, prefilled: bool = False, **fields: Any) -> Score:
    return score_language(text, LanguageComponent(kind="language", **fields), prefilled=prefilled)


@pytest.mark.parametrize(
    ("text", "script", "value"),
    [
        ("Grüße, naïve", "latin", 1.0),
        ("ab\u4e2d\u6587", "latin", 0.5),
        ("ab\u4e2d\u6587", "han", 0.5),
        ("\u3042\u30a2\u4e2d", "japanese", 1.0),  # hiragana, katakana, Han
        ("\u3042\u30a2\u4e2d", "han", pytest.approx(1 / 3)),
        ("\u043f\u0440\u0438 7 + 5 = 12", "cyrillic", 1.0),  # digits and signs are in no language
        ("\u043f\u0440 \\frac{1}{2} ```print(x)```", "cyrillic", 1.0),  # neither are commands and code
        ("<think>\u4e2d</think>\u6587", "han", 1.0),  # nor the tags
    ],
)
def test_share_of_letters_in_the_script(text: str, script: Any, value: Any) -> None:
    assert language(text, script=script).value == value


@pytest.mark.parametrize("text", ["", "7 + 5 = 12", "!?", "\\frac{1}{2}"])
def test_text_without_letters_earns_nothing(text: str) -> None:
    """Else silence would be the safest answer."""
    assert language(text) == Score(0.0, "no_letters")


def test_part_that_is_judged() -> None:
    text = "<think>\u4e2d\u6587</think>abc"
    assert language(text, part="reasoning").value == 0.0
    assert language(text, part="answer").value == 1.0
    assert language(text, part="all") == Score(0.6, "mixed_script")  # 3 of 5
    assert language("\u4e2d", part="answer", prefilled=True) == Score(0.0, "no_letters")
    assert language("abc", part="reasoning") == Score(0.0, "no_letters")


# ------------------------------------------------------------------------------------------ style

SETTINGS = TextQualityComponent(kind="text_quality", typical_words=10, min_sentence_words=3)


def quality(text: Any) -> Score:
    return score_text_quality(text, SETTINGS, prefilled=False)


def test_flawless_text_is_worth_its_length() -> None:
    """Ten different words in two sentences: all other parts are 1, and length is 1 - 1/e."""
    score = quality("Rain fell on old roofs. Cats slept under warm stoves.")
    assert score.value == pytest.approx(1 - math.exp(-1))
    assert score.reason == "short_text"


def test_each_part_by_hand() -> None:
    # 7 words; sentences: "The cat sat." "the cat ran!" "Yes"
    # pairs: the-cat cat-sat sat-the the-cat cat-ran ran-yes: 5 of 6; first words: the the yes: 2 of 3
    variety = (5 / 6 + 2 / 3) / 2
    punctuation = 1 / 3  # the second starts small, the third has no mark
    whole = 2 / 3
    length = 1 - math.exp(-7 / 10)
    score = quality("The cat sat. the cat ran! Yes")
    assert score.value == pytest.approx(length * (variety + punctuation + whole) / 3)
    assert score.reason == "unpunctuated_text"


def test_length_has_diminishing_returns() -> None:
    texts = [" ".join(f"Word{i} thing{i} does{i} work{i} well{i}." for i in range(n)) for n in (2, 4, 6, 8)]
    values = [quality(text).value or 0.0 for text in texts]
    gains = [after - before for before, after in itertools.pairwise(values)]
    assert min(gains) > 0
    assert gains == sorted(gains, reverse=True)


def test_padding_with_the_same_sentence_does_not_pay() -> None:
    """Twice the length earns less than what the repetition costs, from there on it falls to a third of the rest."""
    once = "Rain fell on old roofs while cats slept under warm stoves. Nobody came to see them all day long."
    assert (quality(once * 1).value or 0) > (quality(f"{once} " * 50).value or 0)
    assert quality(f"{once} " * 50).reason == "repetitive_text"


@pytest.mark.parametrize("text", ["", "   ", "<think>A long and fine thought.</think>", "!!!", "___", [], None])
def test_no_answer_earns_nothing(text: Any) -> None:
    assert (quality(text).value or 0.0) < 0.05


def test_reasoning_is_not_judged() -> None:
    assert quality("<think>one two three</think>Rain fell on old roofs.") == quality("Rain fell on old roofs.")
    assert score_text_quality("never closed", SETTINGS, prefilled=True) == Score(0.0, "empty_completion")


@pytest.mark.parametrize(
    "text", ["a " * 500_000, "a" * 1_000_000, "." * 1_000_000, "\u3002" * 300_000, "A. " * 300_000]
)
def test_huge_texts_take_linear_time(text: str) -> None:
    started = time.monotonic()
    quality(text)
    score_repetition(text, ngram_size=3)
    language(text)
    assert time.monotonic() - started < 8
