"""Dynamic sampling's arithmetic: which groups are kept, and how many prompts to draw next.

Pure: every process is given the same values, so all of them decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Rewards are float32; what differs by less is rounding.
_TOLERANCE = 1e-6


def varies(values: Sequence[float]) -> bool:
    """Say whether the values of a group differ; NaN (a target that cannot be judged) is not looked at."""
    judged = [value for value in values if not math.isnan(value)]
    return bool(judged) and max(judged) - min(judged) > _TOLERANCE


class GroupSelection:
    """The groups of one batch, numbered from 0 in the order in which rounds of generation brought them.

    Args:
        wanted: Groups of the full batch.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.num_rounds = 0
        self.num_drawn = 0
        self._varying: list[int] = []
        self._dead: list[int] = []

    def add_round(self, values_BG: Sequence[Sequence[float]]) -> None:
        """Take the groups of a round: B groups, values of their G completions in the component that must vary."""
        for values in values_BG:
            (self._varying if varies(values) else self._dead).append(self.num_drawn)
            self.num_drawn += 1
        self.num_rounds += 1

    @property
    def num_varying(self) -> int:
        """Groups that vary, so far; may be more than are wanted."""
        return len(self._varying)

    @property
    def num_missing(self) -> int:
        """Groups that vary and are still wanted."""
        return max(0, self.wanted - self.num_varying)

    @property
    def acceptance_rate(self) -> float:
        """Share of the groups that vary, 0 to 1."""
        return self.num_varying / self.num_drawn

    def count_next(self, num_processes: int, num_generations: int) -> int:
        """Return how many prompts the next round takes.

        As many as bring the missing groups at the rate so far, and one more, since on average half of such rounds fall
        short; at most a full batch, which is known to fit. Rows are shared equally: the number times `num_generations`
        divides by `num_processes`, as that of a full batch does.
        """
        if self.num_varying == 0:
            return self.wanted
        count = min(self.wanted, math.ceil(self.num_missing / self.acceptance_rate) + 1)
        multiple = num_processes // math.gcd(num_processes, num_generations)
        return math.ceil(count / multiple) * multiple

    def choose(self) -> list[int]:
        """Return the numbers of the groups of the batch: those that vary, and dead ones where there are too few."""
        return (self._varying + self._dead)[: self.wanted]
