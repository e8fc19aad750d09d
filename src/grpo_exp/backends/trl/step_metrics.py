"""Metrics of an optimizer step from those of its micro-batches, each weighted by what it is a mean over.

TRL takes the plain mean over micro-steps; micro-batches that hold rows of one length differ too much for that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypedDict


class Accounting(TypedDict):
    """What stands behind the numbers of one micro-batch; all counts are over all processes."""

    loss_scale: float
    """Factor of TRL's loss, so that its divisor becomes that of the whole batch."""
    tokens: int
    """Tokens in the loss that are run in this micro-batch."""
    rows: int
    """Rows that are run in it, stand-ins included."""
    stand_ins: int
    """Rows that were put in and have no token in the loss."""
    all_tokens: int
    """Tokens in the loss of the optimizer step, those of rows that are left out included."""
    all_rows: int
    """Rows of the optimizer step."""
    left_out: int
    """Rows of it with tokens in the loss that are not run."""
    is_last: bool
    """Whether the optimizer step ends with it."""


#: Means over the tokens that are run.
_OVER_RUN_TOKENS = frozenset({"entropy", "kl"})
#: Shares of what is clipped; a row that is left out has advantage 0, which is never clipped, so it counts in full.
_SHARES = frozenset({"clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio"})
#: Means over the sequences that are run. VESPO's weight of a stand-in, whose ratio is 1, is exactly 1.
_OVER_RUN_ROWS = {"vespo/phi_seq_mean": 1.0}
#: The completion that is clipped least, and most.
_EXTREMES = {"clip_ratio/low_min": min, "clip_ratio/high_max": max}


class StepMetrics:
    """Collects the micro-batches of an optimizer step.

    Args:
        sequence_level: Whether ratios, and with them the shares of what is clipped, are one for each sequence.
    """

    def __init__(self, *, sequence_level: bool) -> None:
        self._sequence_level = sequence_level
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._extremes: dict[str, float] = {}
        self._tokens = 0
        self._rows = 0

    def add(self, metrics: Mapping[str, Sequence[float]], accounting: Accounting) -> dict[str, float]:
        """Take one micro-batch in.

        Args:
            metrics: What TRL logged for it: one value a name, nothing where nothing was run.
            accounting: What the values are means over.

        Returns:
            What is to be logged now: behind the last micro-batch of a step its metrics, before that only those that
            need no weights. A mean over nothing is absent.
        """
        ready: dict[str, float] = {}
        for name, values in metrics.items():
            (value,) = values
            if not self._take(name, value, accounting):
                ready[name] = value
        self._tokens += accounting["tokens"]
        self._rows += accounting["rows"] - accounting["stand_ins"]
        if not accounting["is_last"]:
            return ready
        ready |= self._finish(accounting)
        self._sums.clear()
        self._extremes.clear()
        self._tokens = self._rows = 0
        return ready

    def _take(self, name: str, value: float, accounting: Accounting) -> bool:
        if name in _EXTREMES:
            # NaN where no row of a micro-batch has a token; it stays where that is so for all of them.
            known = [v for v in (value, self._extremes.get(name, math.nan)) if not math.isnan(v)]
            self._extremes[name] = _EXTREMES[name](known, default=math.nan)
        elif name in _OVER_RUN_ROWS:
            self._sums[name] += value * accounting["rows"] - _OVER_RUN_ROWS[name] * accounting["stand_ins"]
        elif name in _SHARES and self._sequence_level:
            self._sums[name] += value * accounting["rows"]
        elif name in _SHARES or name in _OVER_RUN_TOKENS:
            self._sums[name] += value * accounting["tokens"]
        else:
            return False
        return True

    def _finish(self, accounting: Accounting) -> dict[str, float]:
        shares_over = accounting["all_rows"] if self._sequence_level else accounting["all_tokens"]
        found: dict[str, float] = {}
        for name, total in self._sums.items():
            over = shares_over if name in _SHARES else self._rows if name in _OVER_RUN_ROWS else self._tokens
            if over:
                found[name] = total / over
        for name, value in self._extremes.items():
            known = [v for v in (value, *[0.0] * accounting["left_out"]) if not math.isnan(v)]
            if known:
                found[name] = _EXTREMES[name](known)
        return found
