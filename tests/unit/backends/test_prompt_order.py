"""The order of the prompts is a function of seed, epoch and index: in every epoch, and wherever a run is resumed."""

from __future__ import annotations

import itertools

import pytest
from trl.trainer.utils import RepeatSampler

from grpo_exp.backends.trl.prompt_order import PromptOrderSampler, PromptStream, easy_to_hard, permutation

SIZE, G, PROMPTS = 11, 2, 3


def sampler(seed: int = 0, epoch: int = 0, repeat_count: int = 1) -> PromptOrderSampler:
    """11 prompts, 3 of them in a generated batch: 3 batches an epoch, and two prompts are left over."""
    repeats = RepeatSampler(
        range(SIZE), mini_repeat_count=G, batch_size=PROMPTS, repeat_count=repeat_count, shuffle=False
    )
    return PromptOrderSampler(repeats, seed, lambda: epoch)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_permutation_holds_each_number_once(size: int) -> None:
    assert sorted(permutation(size, 0, "prompts", 3)) == list(range(size))


def test_permutation_depends_on_every_part_of_its_key() -> None:
    keys = [(0, "prompts", 0), (1, "prompts", 0), (0, "prompts", 1), (0, "dynamic sampling", 0), (10, "prompts", 0)]
    orders = [tuple(permutation(50, *key)) for key in keys]
    assert len(set(orders)) == len(orders)
    assert permutation(50, *keys[0]) == list(orders[0])


def test_each_epoch_is_another_permutation_and_seeds_differ() -> None:
    """Every second index is a new prompt (G = 2); 9 of the 11 are used, no one twice."""
    epochs = [list(sampler(epoch=epoch))[::G] for epoch in range(4)]
    for order in epochs:
        assert len(order) == 9
        assert len(set(order)) == 9
    assert len({tuple(order) for order in epochs}) == 4
    assert list(sampler(seed=1)) != list(sampler(seed=0))


def test_prompts_are_repeated_as_trl_repeats_them() -> None:
    """Each prompt G = 2 times, all three of a batch twice (two micro-steps), then the next three."""
    order = permutation(SIZE, 0, "prompts", 0)
    first, second = ([index for index in order[start : start + 3] for _ in range(G)] for start in (0, 3))
    indices = list(sampler(repeat_count=2))
    assert indices[:24] == [*first, *first, *second, *second]
    assert len(sampler(repeat_count=2)) == len(indices) == 36


@pytest.mark.parametrize("done", [0, 1, 2, 3, 4, 7, 8])
def test_resumed_anywhere_it_goes_on_as_if_uninterrupted(done: int) -> None:
    """3 batches of 6 indices an epoch: after `done` of them the trainer skips `done % 3` in epoch `done // 3`."""
    whole = list(itertools.chain.from_iterable(sampler(epoch=epoch) for epoch in range(3)))
    epoch, skipped = divmod(done, 3)
    rest = list(sampler(epoch=epoch))[6 * skipped :]
    rest += list(itertools.chain.from_iterable(sampler(epoch=later) for later in range(epoch + 1, 3)))
    assert rest == whole[6 * done :]


def test_epoch_is_asked_when_an_iteration_begins() -> None:
    """One sampler serves all epochs of a run, and nobody tells it which one it is."""
    epoch = 0
    repeats = RepeatSampler(range(SIZE), mini_repeat_count=1, batch_size=1, shuffle=False)
    one = PromptOrderSampler(repeats, 7, lambda: epoch)
    first = list(one)
    epoch = 5
    assert list(one) == permutation(SIZE, 7, "prompts", 5) != first == permutation(SIZE, 7, "prompts", 0)


def test_stream_goes_on_into_the_next_epoch() -> None:
    """5 prompts, 12 drawn: two whole epochs, each a permutation, and 2 prompts of the third."""
    stream = PromptStream(5, seed=0, purpose="dynamic sampling")
    drawn = stream.take(3) + stream.take(9)
    assert stream.position == 12
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == [0, 1, 2, 3, 4]
    assert drawn[:5] != drawn[5:10]
    assert drawn == PromptStream(5, seed=0, purpose="dynamic sampling").take(12)


def test_stream_goes_on_from_its_position() -> None:
    whole = PromptStream(7, seed=3, purpose="dynamic sampling").take(20)
    for position in (0, 1, 6, 7, 13, 19):
        stream = PromptStream(7, seed=3, purpose="dynamic sampling")
        stream.position = position
        assert stream.take(20 - position) == whole[position:]


def test_stream_is_not_the_order_of_the_sampler() -> None:
    """Otherwise a refill would generate for the prompts whose turn comes next."""
    stream = PromptStream(100, seed=0, purpose="dynamic sampling").take(100)
    assert stream != permutation(100, 0, "prompts", 0)


# ------------------------------------------------------------------------------------------ easy to hard


def test_stages_go_from_easy_to_hard_and_hold_each_prompt_once() -> None:
    """Ten prompts in three stages: of 3, 3 and 4 in the order of difficulty; unknown ones are the hardest."""
    difficulties = [5.0, None, 1.0, 3.0, 2.0, 9.0, 4.0, None, 8.0, 2.0]
    order = easy_to_hard(difficulties, 3)(0, "prompts", 0)
    assert [set(order[:3]), set(order[3:6]), set(order[6:])] == [{2, 4, 9}, {3, 6, 0}, {8, 5, 1, 7}]


def test_stages_are_shuffled_anew_in_each_epoch_and_for_each_purpose() -> None:
    order = easy_to_hard([float(i) for i in range(100)], 2)
    orders = {tuple(order(*key)) for key in ((0, "prompts", 0), (0, "prompts", 1), (1, "prompts", 0), (0, "other", 0))}
    assert len(orders) == 4
    assert all(set(found[:50]) == set(range(50)) for found in orders)
    assert order(0, "prompts", 0) == order(0, "prompts", 0)


def test_sampler_and_further_rounds_keep_to_the_order() -> None:
    """11 prompts of which 9 are used: with 11 stages of one each they come in the order of difficulty."""
    by_number = easy_to_hard([float(-i) for i in range(SIZE)], SIZE)
    repeats = RepeatSampler(range(SIZE), mini_repeat_count=G, batch_size=PROMPTS, repeat_count=1, shuffle=False)
    assert list(PromptOrderSampler(repeats, 0, lambda: 0, by_number))[::G] == list(range(10, 1, -1))
    stream = PromptStream(SIZE, 0, "dynamic sampling", by_number)
    assert stream.take(13) == [*range(10, -1, -1), 10, 9]
