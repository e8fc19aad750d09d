"""The order of the prompts: a function of seed, epoch and index, whoever asks and whenever.

One order is no such function: the online curriculum's, which has a state (`online_curriculum`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from trl.trainer.utils import RepeatSampler

from grpo_exp.seeding import derive_seed


def permutation(size: int, *key: object) -> list[int]:
    """Return the numbers 0 to size - 1 in an order that depends on the key.

    Sorted by random numbers, not shuffled: Python promises to keep `random()` as it is, and nothing else.
    """
    draws = random.Random(derive_seed(*key))
    keys = [draws.random() for _ in range(size)]
    return sorted(range(size), key=keys.__getitem__)


#: From seed, purpose and number of an epoch to the prompts in their order; purposes tell walks of one run apart.
PromptOrder = Callable[[int, str, int], list[int]]


def shuffled(size: int) -> PromptOrder:
    """Return the order in which each epoch is a random permutation."""
    return lambda seed, purpose, epoch: permutation(size, seed, purpose, epoch)


def easy_to_hard(difficulties: Sequence[float | None], stages: int) -> PromptOrder:
    """Return the order in which each epoch goes through stages of equal size from easy to hard (arXiv:2506.06632).

    Args:
        difficulties: Of all prompts; grows with difficulty. Those whose difficulty nobody knows come last.
        stages: How many; within a stage the order is random.
    """
    unknown = float("inf")
    ranked = sorted(range(len(difficulties)), key=lambda index: (_or(difficulties[index], unknown), index))
    bounds = [len(ranked) * stage // stages for stage in range(stages + 1)]
    parts = [ranked[start:end] for start, end in itertools.pairwise(bounds)]

    def order(seed: int, purpose: str, epoch: int) -> list[int]:
        return [
            part[place]
            for stage, part in enumerate(parts)
            for place in permutation(len(part), seed, purpose, epoch, "stage", stage)
        ]

    return order


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


class PromptSource(Protocol):
    """Where prompts are drawn from, a few at a time."""

    position: int
    """How many have been taken."""

    def take(self, count: int) -> list[int]:
        """Return the next `count` prompts, as numbers of rows."""
        ...


class PromptStream:
    """An endless walk through the prompts, each epoch in an order of its own.

    Args:
        size: Prompts of the data set, at least 1.
        seed: Of the run.
        purpose: Tells streams of one run apart.
        order: Of each epoch; None shuffles.
    """

    def __init__(self, size: int, seed: int, purpose: str, order: PromptOrder | None = None) -> None:
        self._size = size
        self._key = (seed, purpose)
        self._order = order or shuffled(size)
        self._epoch: tuple[int, list[int]] | None = None
        #: How many have been taken: all that the stream's state is.
        self.position = 0

    def take(self, count: int) -> list[int]:
        """Return the next `count` prompts; past the end of an epoch those of the next one."""
        taken = [self._at(position) for position in range(self.position, self.position + count)]
        self.position += count
        return taken

    def _at(self, position: int) -> int:
        number, index = divmod(position, self._size)
        if self._epoch is None or self._epoch[0] != number:
            self._epoch = number, self._order(*self._key, number)
        return self._epoch[1][index]


class PromptOrderSampler:
    """TRL's sampler, which repeats prompts for groups and micro-steps, over prompts in an order per epoch.

    TRL draws each order from a generator that goes on from epoch to epoch, so a resumed run begins with the first one.

    Args:
        repeats: TRL's sampler; it must not shuffle.
        seed: Of the run.
        epoch: Tells the epoch, from 0; asked whenever an iteration begins.
        order: Of each epoch; None shuffles.
    """

    def __init__(
        self, repeats: RepeatSampler, seed: int, epoch: Callable[[], int], order: PromptOrder | None = None
    ) -> None:
        assert not repeats.shuffle
        self._order = order or shuffled(repeats.num_samples)
        self._repeats = repeats
        self._seed = seed
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = self._order(self._seed, "prompts", self._epoch())
        return (order[index] for index in self._repeats)

    def __len__(self) -> int:
        return len(self._repeats)
