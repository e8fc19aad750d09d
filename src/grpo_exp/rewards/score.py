"""What a scorer returns.

Reasons are short slugs; they are counted, logged as curves and written next to every value.

| slug | value | meaning |
|---|---|---|
| `match` | 1.0 | the answer equals the target |
| `mismatch` | 0.0 | the answer is another value |
| `wrong_unit` | 0.0 | both name a unit (or a base), and the two differ |
| `unevaluated` | 0.0 | a sum, product or other unfinished work where the target is a plain number |
| `unparsable` | 0.0 | the answer is not mathematics that can be read |
| `too_long` | 0.0 | the answer is longer or more deeply nested than any honest one |
| `no_box` | 0.0 | there is no box after the reasoning |
| `cut_box` | 0.0 | the last box is never closed |
| `empty_box` | 0.0 | the last box holds nothing |
| `unclosed_reasoning` | 0.0 | the reasoning never ends, so there is no answer yet |
| `empty_completion` | 0.0 | the completion holds no text |
| `timeout` | 0.0 | the checker ran into its time limit on this answer |
| `crash` | 0.0 | the checker died on this answer |
| `no_target` | None | the target is null, empty, or not a number or text |
| `unparsable_target` | None | the target cannot be read |
| `target_timeout` | None | the target alone keeps the checker busy beyond its time limit |
| `target_crash` | None | the target alone kills the checker |
| `well_formed` | 1.0 | the format is as asked |
| `text_before_reasoning` | 0.0 | the completion does not start with the opening tag |
| `repeated_tag` | 0.0 | a tag appears more often than once |
| `no_closing_tag` | 0.0 | the reasoning is never closed |
| `empty_reasoning` | 0.0 | there are only blanks between the tags |
| `no_answer` | 0.0 | there are only blanks after the reasoning |
| `missing_newlines` | 0.0 | `strict_newlines` is on and a tag does not stand on a line of its own |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """The value of one completion and why it has that value.

    Args:
        value: From 0.0 to 1.0, or None when the *target* cannot be judged.
        reason: A slug from the table of this module.
    """

    value: float | None
    reason: str


def reason_counts(scores: Iterable[Score]) -> dict[str, int]:
    """Count the reasons, most frequent first."""
    return dict(Counter(score.reason for score in scores).most_common())
