"""What surprises in the first steps is explained once, where it occurs."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_exp.health.explanations import FIRST_STEPS, Explainer
from grpo_exp.settings import load

#: A first step as dapo has it: on-policy, two thirds of the groups dead.
STEP = {
    "train/loss": -0.0031,
    "train/grad_norm": 0.42,
    "train/clip_ratio/low_mean": 0.0,
    "train/clip_ratio/high_mean": 0.0,
    "train/frac_reward_zero_std": 2 / 3,
    "train/rewards/correctness/mean": 0.9,
}
TOPICS = ["loss_near_zero", "clip_ratios_zero", "dead_groups"]


def explainer(*words: str, told: tuple[str, ...] = ()) -> Explainer:
    return Explainer(load.to_settings(load.compose(["tracker=none", "algorithm=dapo", *words])), told=told)


def topics(*words: str, **changes: Any) -> list[str]:
    values = {**STEP, **{f"train/{name}": value for name, value in changes.items()}}
    metrics = {name: value for name, value in values.items() if value is not None}
    return [explanation.topic for explanation in explainer(*words).observe(1, metrics)]


def test_each_is_one_line_with_the_value_that_was_seen() -> None:
    loss, clips, groups = explainer().observe(1, STEP)
    assert loss.text.startswith("loss -0.0031 is near 0 by construction: each batch is used for one update")
    assert "(grad_norm 0.42)" in loss.text
    assert clips.text.startswith("clip ratios are 0 because each batch is used for one update")
    assert groups.text.startswith("67% of the groups got equal rewards for all their completions")
    assert "(mean correctness 0.900)" in groups.text
    assert "algorithm.num_generations (now 8)" in groups.text
    assert not any("\n" in explanation.text for explanation in (loss, clips, groups))


def test_nothing_is_told_twice_and_nothing_late() -> None:
    teller = explainer()
    assert [e.topic for e in teller.observe(1, {"train/loss": 0.0, "train/grad_norm": 1.0})] == ["loss_near_zero"]
    assert [e.topic for e in teller.observe(2, STEP)] == ["clip_ratios_zero", "dead_groups"]
    assert teller.observe(3, STEP) == []
    assert explainer().observe(FIRST_STEPS, STEP)
    assert explainer().observe(FIRST_STEPS + 1, STEP) == []


def test_what_an_earlier_attempt_told_is_not_told_again() -> None:
    teller = explainer(told=("clip_ratios_zero", "dead_groups"))
    assert [e.topic for e in teller.observe(1, STEP)] == ["loss_near_zero"]
    assert explainer(told=tuple(TOPICS)).observe(1, STEP) == []


@pytest.mark.parametrize("word", ["algorithm.updates_per_batch=2", "algorithm.num_iterations=2"])
def test_ratio_of_a_batch_that_is_used_twice_is_not_one(word: str) -> None:
    assert topics(word) == ["dead_groups"]


def test_values_that_do_not_surprise_are_not_explained() -> None:
    assert topics() == TOPICS
    assert topics(loss=0.3) == ["clip_ratios_zero", "dead_groups"]
    assert topics(grad_norm=0.0) == ["clip_ratios_zero", "dead_groups"]  # then there is no gradient that teaches
    assert topics(**{"clip_ratio/high_mean": 0.01}) == ["loss_near_zero", "dead_groups"]
    assert topics(frac_reward_zero_std=0.49) == ["loss_near_zero", "clip_ratios_zero"]


def test_metric_that_does_not_exist_is_not_explained() -> None:
    assert topics(loss=None, frac_reward_zero_std=None) == ["clip_ratios_zero"]
    assert topics(**{"clip_ratio/low_mean": None, "clip_ratio/high_mean": None}) == ["loss_near_zero", "dead_groups"]


def test_loss_that_is_no_mean_advantage_is_near_zero_by_chance() -> None:
    """CISPO multiplies by log-probabilities; its clip ratio has another name."""
    words = ("algorithm.loss_type=cispo", "algorithm.epsilon_high=5")
    assert topics(*words, cispo_clip_ratio=0.0) == ["clip_ratios_zero", "dead_groups"]


def test_variance_of_the_whole_batch_is_told_as_such() -> None:
    (groups,) = explainer("algorithm.scale_rewards=batch").observe(1, {"train/frac_reward_zero_std": 1.0})
    assert groups.text.startswith("all rewards of the batch are equal (frac_reward_zero_std 1)")


def test_nothing_is_explained_where_nothing_is_watched() -> None:
    assert explainer("health=off").observe(1, STEP) == []
