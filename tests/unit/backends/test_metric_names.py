"""TRL's keys become our names; no number is invented and none is lost."""

from __future__ import annotations

import math

import pytest

from grpo_exp.backends.trl.metric_names import to_metrics

nan, inf = math.nan, math.inf


def test_length_keys_get_the_word_of_the_field() -> None:
    logs = {
        "completions/mean_length": 12.5,
        "completions/min_length": 3,
        "completions/max_length": 32,
        "completions/mean_terminated_length": 10.0,
        "completions/clipped_ratio": 0.25,
    }
    assert to_metrics(logs) == {
        "train/completion_length/mean": 12.5,
        "train/completion_length/min": 3.0,
        "train/completion_length/max": 32.0,
        "train/completion_length/terminated_mean": 10.0,
        "train/completion_length/truncated_fraction": 0.25,
    }


@pytest.mark.parametrize(
    "key",
    [
        "reward", "reward_std", "rewards/correctness/mean", "rewards/format/std", "kl", "clip_ratio/low_mean",
        "clip_ratio/high_max", "frac_reward_zero_std", "entropy", "loss", "grad_norm", "learning_rate", "num_tokens",
        "sampling/importance_sampling_ratio/mean", "a_key_of_a_later_version",
    ],
)  # fmt: skip
def test_other_keys_keep_their_name(key: str) -> None:
    assert to_metrics({key: 0.5}) == {f"train/{key}": 0.5}


@pytest.mark.parametrize(
    "key", ["step_time", "total_flos", "train_loss", "train_runtime", "completions/max_terminated_length"]
)
def test_repeated_curves_are_left_out(key: str) -> None:
    assert to_metrics({key: 1.0}) == {}


def test_metric_that_does_not_exist_stays_absent() -> None:
    """Without a reference there is no KL, and nothing puts a 0 in its place."""
    assert to_metrics({}) == {}
    assert set(to_metrics({"loss": 0.1, "entropy": 1.0})) == {"train/loss", "train/entropy"}


def test_mean_over_nothing_is_absent_but_a_broken_loss_is_seen() -> None:
    found = to_metrics({"loss": nan, "grad_norm": inf, "reward": nan, "entropy": None, "note": "text", "kl": inf})
    assert math.isnan(found.pop("train/loss"))
    assert found == {"train/grad_norm": inf, "train/kl": inf}


def test_no_name_is_a_folder_of_another() -> None:
    """File stores keep one file per name: a/b cannot lie in the file a."""
    keys = [
        "completions/mean_length", "completions/clipped_ratio", "rewards/correctness/mean", "reward", "reward_std",
        "clip_ratio/low_mean", "clip_ratio/region_mean", "kl", "entropy", "loss", "epoch", "frac_reward_zero_std",
    ]  # fmt: skip
    names = set(to_metrics(dict.fromkeys(keys, 1.0)))
    assert len(names) == len(keys)
    parents = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    assert not names & parents


def test_length_of_ended_completions_is_absent_where_none_ended() -> None:
    """TRL writes 0 then; a completion that ended has at least its end token, so 0 is never a length."""
    logs = {"completions/clipped_ratio": 1.0, "completions/mean_terminated_length": 0.0}
    assert to_metrics(logs) == {"train/completion_length/truncated_fraction": 1.0}
