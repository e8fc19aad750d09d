"""Repetition, script and style of a text, by counting. Linear in its length."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from grpo_exp.rewards.completion import Completion, CompletionText, read_completion
from grpo_exp.rewards.extraction import CLOSING_TAG, OPENING_TAG
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_text import LanguageComponent, TextQualityComponent

#: A word, or 20 characters of one that never ends: `aaaa...` repeats itself, too. Other signs are words of their own.
_WORD = re.compile(r"\w{1,20}|[^\w\s]")
_PLAIN_WORD = re.compile(r"\w+(?:['’-]\w+)*")  # noqa: RUF001
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"')\]”’]*\s+|\n\s*\n|(?<=[。！？])")  # noqa: RUF001
_MARKS = tuple(".!?。！？")  # noqa: RUF001
_CLOSERS = "\"')]”’*_ \t\n"  # noqa: RUF001
#: What has letters and is in no language: LaTeX commands and fenced code.
_NO_LANGUAGE = re.compile(r"```.*?(?:```|\Z)|\\[a-zA-Z]+", re.DOTALL)
_SCRIPT_NAMES: dict[str, tuple[str, ...]] = {
    "han": ("CJK",),
    "japanese": ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    "latin": ("LATIN", "FULLWIDTH LATIN"),
}


def score_repetition(completion: Completion, *, ngram_size: int) -> Score:
    """Return (different n-grams / n-grams) - 1, from -1 to 0; 0 where there are too few words for one.

    Args:
        completion: Text, or messages of which the last assistant turn is judged, reasoning included.
        ngram_size: Words in an n-gram.
    """
    words = _WORD.findall(_whole_text(read_completion(completion)).casefold())
    count = len(words) - ngram_size + 1
    if count < 1:
        return Score(0.0, "no_repetition")
    different = len(set(zip(*(words[start:] for start in range(ngram_size)), strict=False)))
    return Score(different / count - 1, "no_repetition" if different == count else "repetition")


def score_language(completion: Completion, settings: LanguageComponent, *, prefilled: bool) -> Score:
    """Return the share of the letters that belong to the wanted script; a text without letters earns nothing.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        settings: The script, and which part of the completion counts.
        prefilled: The prompt ended with the opening tag of the reasoning.
    """
    text = _part(read_completion(completion), settings.part, prefilled=prefilled)
    text = _NO_LANGUAGE.sub(" ", text.replace(OPENING_TAG, " ").replace(CLOSING_TAG, " "))
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return Score(0.0, "no_letters")
    wanted = sum(_is_of(letter, settings.script) for letter in letters)
    return Score(wanted / len(letters), "wanted_script" if wanted == len(letters) else "mixed_script")


def _whole_text(read: CompletionText) -> str:
    return read.text if read.reasoning is None else f"{read.reasoning}\n{read.text}"


def _part(read: CompletionText, part: str, *, prefilled: bool) -> str:
    if part == "all":
        return _whole_text(read)
    reasoning, closing, answer = read.text.rpartition(CLOSING_TAG)
    if read.reasoning is not None:
        reasoning, answer = read.reasoning, read.text
    elif not closing and (prefilled or OPENING_TAG in read.text):
        reasoning, answer = read.text, ""
    return reasoning if part == "reasoning" else answer


@lru_cache(maxsize=65_536)
def _is_of(letter: str, script: str) -> bool:
    return unicodedata.name(letter, "").startswith(_SCRIPT_NAMES.get(script, (script.upper(),)))


# --------------------------------------------------------------------------------------- style


def score_text_quality(completion: Completion, settings: TextQualityComponent, *, prefilled: bool) -> Score:
    """Return length x (variety + punctuation + whole sentences) / 3, from 0 to 1.

    Only what follows the reasoning is judged. The reason names the weakest part.

    Args:
        completion: Text, or messages of which the last assistant turn is judged.
        settings: What is long, and what is a fragment.
        prefilled: The prompt ended with the opening tag of the reasoning.
    """
    text = _part(read_completion(completion), "answer", prefilled=prefilled)
    words = [word.casefold() for word in _PLAIN_WORD.findall(text)]
    if not words:
        return Score(0.0, "empty_completion")
    sentences = [sentence for part in _SENTENCE_END.split(text) if (sentence := part.strip()) and _words(sentence)]
    parts = {
        "short_text": 1 - math.exp(-len(words) / settings.typical_words),
        "repetitive_text": _variety(words, sentences),
        "unpunctuated_text": _share([_is_punctuated(sentence) for sentence in sentences]),
        "fragmented_text": _share([len(_words(s)) >= settings.min_sentence_words for s in sentences]),
    }
    length, *others = parts.values()
    weakest = min(parts, key=lambda name: parts[name])
    return Score(length * sum(others) / 3, weakest if parts[weakest] < 0.8 else "good_text")


def _words(sentence: str) -> list[str]:
    return _PLAIN_WORD.findall(sentence)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def _variety(words: Sequence[str], sentences: Sequence[str]) -> float:
    """Return the mean of the shares of different word pairs and of different first words of a sentence."""
    pairs = list(pairwise(words))
    starts = [_words(sentence)[0].casefold() for sentence in sentences]
    different_pairs = len(set(pairs)) / len(pairs) if pairs else 1.0
    return (different_pairs + len(set(starts)) / len(starts)) / 2


def _is_punctuated(sentence: str) -> bool:
    """Tell whether a sentence ends in a mark and does not start with a small letter."""
    first = next((character for character in sentence if character.isalnum()), "")
    return not first.islower() and sentence.rstrip(_CLOSERS).endswith(_MARKS)
