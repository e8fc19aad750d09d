"""The order of the prompts: a function of seed, epoch and index, whoever asks and whenever."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from trl.trainer.utils import RepeatSampler

from grpo_exp.seeding import derive_seed


def permutation(size: int, *key: object) -> list[int]:
    """Return the numbers 0 to size - 1 in an order that depends on the key.

    Sorted by random numbers, not shuffled: Python promises to keep `random()` as it is, and nothing else.
    """
    draws = random.Random(derive_seed(*key))
    keys = [draws.random() for _ in range(size)]
    return sorted(range(size), key=keys.__getitem__)


class PromptStream:
    """An endless walk through the prompts, each epoch in an order of its own.

    Args:
        size: Prompts of the data set, at least 1.
        seed: Of the run.
        purpose: Tells streams of one run apart.
    """

    def __init__(self, size: int, seed: int, purpose: str) -> None:
        self._size = size
        self._key = (seed, purpose)
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
            self._epoch = number, permutation(self._size, *self._key, number)
        return self._epoch[1][index]


class PromptOrderSampler:
    """TRL's sampler, which repeats prompts for groups and micro-steps, over prompts in an order per epoch.

    TRL draws each order from a generator that goes on from epoch to epoch, so a resumed run begins with the first one.

    Args:
        repeats: TRL's sampler; it must not shuffle.
        seed: Of the run.
        epoch: Tells the epoch, from 0; asked whenever an iteration begins.
    """

    def __init__(self, repeats: RepeatSampler, seed: int, epoch: Callable[[], int]) -> None:
        assert not repeats.shuffle
        self._repeats = repeats
        self._seed = seed
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = permutation(self._repeats.num_samples, self._seed, "prompts", self._epoch())
        return (order[index] for index in self._repeats)

    def __len__(self) -> int:
        return len(self._repeats)
