"""Components that judge length, repetition, script and style."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Int, Text
from grpo_exp.settings.reward_schedule import ComponentSettings

Script = Literal["arabic", "cyrillic", "devanagari", "greek", "han", "hangul", "hebrew", "japanese", "latin", "thai"]

#: A value of a component; it may be a punishment.
_Value = Annotated[Float, Field(ge=-100, le=100)]


class OverlongComponent(ComponentSettings):
    """Soft punishment of long completions, -1 to 0 (DAPO, arXiv:2503.14476, equation 13).

    With n tokens, L = `max_completion_tokens` and C = `cache_tokens`: 0 up to L - C, then (L - C - n) / C up to L,
    then -1.
    """

    kind: Literal["overlong"]
    max_completion_tokens: Annotated[Int, Field(ge=1, le=1_048_576)]
    """L in tokens, the expected maximum. Completions are cut at `trainer.max_completion_length`."""
    cache_tokens: Annotated[Int, Field(ge=0, le=1_048_576)]
    """C in tokens, 0 to L: the stretch before L in which the punishment grows. DAPO has L 20480 and C 4096."""

    @model_validator(mode="after")
    def _check(self) -> OverlongComponent:
        if self.cache_tokens > self.max_completion_tokens:
            raise ValueError(
                f"cache_tokens: {self.cache_tokens} is above max_completion_tokens={self.max_completion_tokens}, so "
                f"the empty completion would be punished; use cache_tokens={self.max_completion_tokens} or less"
            )
        return self


class CosineLengthComponent(ComponentSettings):
    """Cosine of the length, different for right and wrong answers (arXiv:2502.03373, equation 1).

    With n tokens and L = `max_completion_tokens`: long + (short - long) (1 + cos(pi n / L)) / 2 with the numbers of
    right or wrong answers, and `over_limit` from L on. It replaces correctness in the sum, so give that weight 0.
    """

    kind: Literal["cosine_length"]
    max_completion_tokens: Annotated[Int, Field(ge=1, le=1_048_576)]
    """L in tokens."""
    judged_by: Text = "correctness"
    """The component that says what is right: a value of 1 or more."""
    right_short: _Value = 1.0
    """Value of a right answer of length 0. The paper has 2."""
    right_long: _Value = 0.5
    """Value of a right answer just below L; below `right_short`, so that among right answers short ones win. The paper
    has 1."""
    wrong_short: _Value = -1.0
    """Value of a wrong answer of length 0. The paper has -10."""
    wrong_long: _Value = -0.5
    """Value of a wrong answer just below L; above `wrong_short`, so that a wrong answer is worth more thought. The
    paper has 0."""
    over_limit: _Value = -1.0
    """Value from L tokens on, right or wrong. The paper has -10."""

    @model_validator(mode="after")
    def _check(self) -> CosineLengthComponent:
        if min(self.right_short, self.right_long) <= max(self.wrong_short, self.wrong_long):
            raise ValueError(
                f"right_short, right_long: {self.right_short} and {self.right_long} are not above "
                f"wrong_short={self.wrong_short} and wrong_long={self.wrong_long}; a right answer must be worth more "
                "than a wrong one at every length; raise the first two"
            )
        return self


class RepetitionComponent(ComponentSettings):
    """Punishment of repeated n-grams of words, -1 to 0 (arXiv:2502.03373, appendix C.2): different / all - 1."""

    kind: Literal["repetition"]
    ngram_size: Annotated[Int, Field(ge=2, le=50)] = 3
    """Words in an n-gram, 2 to 50. Small ones punish ordinary prose: `of the` comes again."""


class LanguageComponent(ComponentSettings):
    """Share of the letters that belong to the wanted script, 0 to 1.

    After the language consistency reward of DeepSeek-R1 (arXiv:2501.12948), which counts words of a language.
    """

    kind: Literal["language"]
    weight: Float = 0.1
    """Factor of this component in the reward; small, since any text of that script pays in full."""
    script: Script = "latin"
    """The wanted script. `japanese` is kana and Han."""
    part: Literal["all", "reasoning", "answer"] = "all"
    """What is judged: everything, what stands before the last `</think>`, or what stands behind it."""


class TextQualityComponent(ComponentSettings):
    """Style of prose, 0 to 1: length x (variety + punctuation + whole sentences) / 3.

    Length is 1 - exp(-words / `typical_words`). Variety is the mean of the shares of different word pairs and of
    different first words of a sentence. Punctuation is the share of sentences that start with a capital and end with a
    mark. Whole is the share of sentences with `min_sentence_words` or more.
    """

    kind: Literal["text_quality"]
    typical_words: Annotated[Int, Field(ge=1, le=100_000)] = 60
    """Words that earn 63 % of the length's part; three times as many earn 95 %."""
    min_sentence_words: Annotated[Int, Field(ge=1, le=20)] = 4
    """Fewer words are a fragment; 1 to 20."""
