"""What a scorer returns.

Reasons are short slugs; they are counted, logged as curves and written next to every value.

| slug | value | meaning |
|---|---|---|
| `match` | 1.0 | the answer equals the target, or the pattern matches |
| `mismatch` | 0.0 | the answer is another value |
| `wrong_unit` | 0.0 | both name a unit (or a base), and the two differ |
| `unevaluated` | 0.0 | a sum, product or other unfinished work where the target is a plain number |
| `unparsable` | 0.0 | the answer is not mathematics that can be read |
| `too_long` | 0.0 | the answer is longer or more deeply nested than any honest one |
| `no_box` | 0.0 | there is no box after the reasoning |
| `cut_box` | 0.0 | the last box is never closed |
| `empty_box` | 0.0 | the last box holds nothing |
| `unclosed_reasoning` | 0.0 | the reasoning never ends, so there is no answer yet |
| `empty_completion` | 0.0 | the completion holds no text, or none after the reasoning |
| `timeout` | 0.0 | the checker ran into its time limit on this answer |
| `crash` | 0.0 | the checker died on this answer |
| `no_target` | None | the target is null, empty, or not a number or text |
| `unparsable_target` | None | the target cannot be read |
| `target_timeout` | None | the target alone keeps the checker busy beyond its time limit |
| `target_crash` | None | the target alone kills the checker |
| `no_marker` | 0.0 | `gsm8k`: there is no `####` after the reasoning |
| `empty_answer` | 0.0 | nothing stands where the answer should |
| `not_a_letter` | 0.0 | `letter`: the answer is more or less than one letter |
| `not_a_number` | 0.0 | `numeric`: the answer is no plain number |
| `no_match` | 0.0 | `regex`: the pattern does not match |
| `not_an_expression` | 0.0 | `countdown`: the answer is more or less than one expression |
| `wrong_numbers` | 0.0 | `countdown`: not each number exactly once, or others |
| `division_by_zero` | 0.0 | `countdown`: the expression has no value |
| `no_numbers` | None | `countdown`: the row has no list of whole numbers |
| `partly_right` | 0 to 1 | `reasoning_gym`: the task's scorer gives a part |
| `well_formed` | 1.0 | the format is as asked |
| `text_before_reasoning` | 0.0 | the completion does not start with the opening tag |
| `repeated_tag` | 0.0 | a tag appears more often than once |
| `no_closing_tag` | 0.0 | the reasoning is never closed |
| `empty_reasoning` | 0.0 | there are only blanks between the tags |
| `no_answer` | 0.0 | there are only blanks after the reasoning |
| `missing_newlines` | 0.0 | `strict_newlines` is on and a tag does not stand on a line of its own |
| `no_answer_tag` | 0.0 | there is no `<answer>` after the reasoning, or no `</answer>` |
| `cut_answer_tag` | 0.0 | `<answer>` is never closed |
| `text_around_answer` | 0.0 | `answer_tag`: something stands before or behind the block |
| `some_tags` | 0 to 1 | `tag_count`: not every tag appears exactly once |
| `no_tags` | 0.0 | `tag_count`: no tag appears exactly once |
| `within_limit` | 0.0 | `overlong`: no punishment |
| `near_limit` | -1 to 0 | `overlong`: in the stretch before the limit |
| `over_limit` | settings | `overlong` (-1), `cosine_length`: at or beyond the limit |
| `right`, `wrong` | settings | `cosine_length`: by the component that judges |
| `no_repetition` | 0.0 | `repetition`: every n-gram is new |
| `repetition` | -1 to 0 | `repetition`: some n-grams come again |
| `wanted_script` | 1.0 | `language`: every letter is of the wanted script |
| `mixed_script` | 0 to 1 | `language`: some are not |
| `no_letters` | 0.0 | `language`: the text holds no letter |
| `good_text` | 0 to 1 | `text_quality`: no part is below 0.8 |
| `short_text`, `repetitive_text`, `unpunctuated_text`, `fragmented_text` | 0 to 1 | `text_quality`: the weakest part |
| `value` | any | `python`: what the function returned |
| `no_value` | None | `python`: the function returned None |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """The value of one completion and why it has that value.

    Args:
        value: Finite, or None when the *target* cannot be judged. From 0 (worthless) to 1 (right) for what judges an
            answer or a form, -1 to 0 for what punishes (`overlong`, `repetition`); `cosine_length` and `python` have
            the range that their settings and functions give them.
        reason: A slug from the table of this module.
    """

    value: float | None
    reason: str


def reason_counts(scores: Iterable[Score]) -> dict[str, int]:
    """Count the reasons, most frequent first."""
    return dict(Counter(score.reason for score in scores).most_common())


#: Zero is the best value of a component that only punishes.
_WITHOUT_FAULT = frozenset({"within_limit", "no_repetition"})


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """What became of the completions of a batch; every completion counts once.

    Args:
        right: Earned something (graded components: anything above 0), or was not punished.
        wrong: Judged, and worth nothing or punished.
        timeout: The checker ran into its time limit.
        crash: The checker died.
        unjudgeable: The target cannot be judged; the value is None.
    """

    right: int = 0
    wrong: int = 0
    timeout: int = 0
    crash: int = 0
    unjudgeable: int = 0


def outcome_counts(scores: Iterable[Score]) -> OutcomeCounts:
    """Count time-outs, crashes, unjudgeable and wrong apart."""
    return OutcomeCounts(**Counter(_outcome(score) for score in scores))


def _outcome(score: Score) -> str:
    if score.value is None:
        return "unjudgeable"
    if score.reason in {"timeout", "crash"}:
        return score.reason
    return "right" if score.value > 0 or score.reason in _WITHOUT_FAULT else "wrong"
