"""What a report names: nothing where nothing is, the true effects where there are some, and nothing with one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grpo_exp.reporting.report.analysis import ALPHA, Analysis, analyse
from grpo_exp.reporting.report.markdown import to_markdown
from grpo_exp.reporting.report.sentences import write_sentences
from grpo_exp.reporting.report.sweep_data import SweepData, find_axes
from grpo_exp.reporting.report.sweep_report import build_sweep_report
from unit.reporting.report.simulated_sweep import GRID, Grid, in_memory, points_of

NUM_POINTS = len(points_of(GRID))
NAN = float("nan")


def names_anything(analysis: Analysis) -> bool:
    return any(effect.is_supported for effect in analysis.effects) or any(c.is_supported for c in analysis.comparisons)


def false_positives(
    grid: Grid, *, seeds: int, trials: int, scale: np.ndarray | float = 1.0, tails: str = "normal"
) -> float:
    """Return the share of sweeps without any effect in which something is named. What the seed adds is as large."""
    generator, named = np.random.default_rng(5), 0
    shape = (len(points_of(grid)), seeds)
    for _ in range(trials):
        noise = generator.standard_normal(shape) if tails == "normal" else generator.standard_t(3, shape)
        values = 0.7 + 0.02 * (scale * noise + generator.standard_normal(seeds))
        named += names_anything(analyse(in_memory(values, grid), "accuracy"))
    return named / trials


def test_null_sweeps_name_nothing_in_94_of_100() -> None:
    assert false_positives(GRID, seeds=3, trials=300) <= 0.06


def test_null_sweeps_with_one_axis_name_nothing_in_94_of_100() -> None:
    assert false_positives({"trainer.learning_rate": (1e-5, 3e-5, 1e-4)}, seeds=3, trials=400) <= 0.06


def test_null_sweeps_with_a_setting_that_changes_not_one_digit_name_nothing_in_94_of_100() -> None:
    """Beta has no effect at all, so its runs are the same runs: 6 experiments and not 12."""
    generator, named, trials = np.random.default_rng(11), 0, 200
    places = {key: number for number, key in enumerate(dict.fromkeys(map(_without_beta, points_of(GRID))))}
    rows = [places[_without_beta(point)] for point in points_of(GRID)]
    for _ in range(trials):
        values = 0.7 + 0.02 * (generator.standard_normal((len(places), 3))[rows] + generator.standard_normal(3))
        analysis = analyse(in_memory(values, GRID), "accuracy")
        named += names_anything(analysis)
    assert named / trials <= 0.06
    told = write_sentences(in_memory(values, GRID), analysis)
    assert any("algorithm.beta: its values make no difference to the last digit" in line for line in told)


def _without_beta(point: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(value for key, value in point.items() if key != "algorithm.beta")


@pytest.mark.long
@pytest.mark.parametrize("tails", ["normal", "t3"])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_null_sweeps_of_all_sorts_name_nothing_in_94_of_100(seeds: int, tails: str) -> None:
    assert false_positives(GRID, seeds=seeds, trials=2000, tails=tails) <= 0.06


@pytest.mark.long
def test_null_sweeps_with_points_of_twice_the_noise_name_nothing_in_94_of_100() -> None:
    scale = np.where(np.arange(NUM_POINTS) % 2, 1.0, 2.0)[:, None]
    assert false_positives(GRID, seeds=3, trials=2000, scale=scale) <= 0.06


def with_known_effects(generator: np.random.Generator, *, seeds: int) -> SweepData:
    """The learning rate adds 0.08, G nothing, beta nothing; noise 0.015 between runs, 0.02 between seeds."""
    effect = np.array([0.08 if values["trainer.learning_rate"] == 1e-4 else 0.0 for values in points_of(GRID)])
    noise = 0.015 * generator.standard_normal((NUM_POINTS, seeds)) + 0.02 * generator.standard_normal(seeds)
    return in_memory(0.7 + effect[:, None] + noise, GRID)


def test_the_true_effect_is_named_and_no_other() -> None:
    generator, others, trials = np.random.default_rng(6), 0, 60
    for _ in range(trials):
        analysis = analyse(with_known_effects(generator, seeds=3), "accuracy")
        named = [effect for effect in analysis.effects if effect.is_supported]
        assert any((e.axis.keys, e.first, e.second) == (("trainer.learning_rate",), (5e-5,), (1e-4,)) for e in named)
        assert all(e.contrast.difference == pytest.approx(0.08, abs=0.03) for e in named if len(e.axis.levels) == 2)
        wrong = [e for e in named if e.axis.keys != ("trainer.learning_rate",)]
        wrong_pairs = [
            c for c in analysis.comparisons
            if c.is_supported and c.first.values["trainer.learning_rate"] == c.second.values["trainer.learning_rate"]
        ]  # fmt: skip
        others += bool(wrong or wrong_pairs)
    assert others / trials <= ALPHA + 0.01


def test_sentences_say_what_is_supported_and_what_is_not() -> None:
    data = with_known_effects(np.random.default_rng(7), seeds=3)
    told = write_sentences(data, analyse(data, "accuracy"))
    (rate,) = [line for line in told if line.startswith("trainer.learning_rate")]
    assert "0.0001 is better than 5e-05 by 0.0" in rate
    assert "18 pairs of runs" in rate  # 6 pairs of points x 3 seeds
    for axis in ("algorithm.num_generations", "algorithm.beta"):
        (line,) = [line for line in told if line.startswith(axis)]
        assert "support no difference" in line
    assert any(line.startswith("3 seeds cannot tell 0.") for line in told)


def test_one_seed_is_not_ranked() -> None:
    values = np.linspace(0.1, 0.9, NUM_POINTS)[:, None]
    analysis = analyse(in_memory(values, GRID), "accuracy")
    assert not analysis.can_rank
    assert not analysis.effects
    assert not analysis.comparisons
    told = " ".join(write_sentences(in_memory(values, GRID), analysis))
    assert "One seed" in told
    assert "nothing is ranked" in told
    for word in ("better", "highest", "best"):
        assert word not in told


def test_runs_without_a_result_are_told_and_in_no_mean() -> None:
    values = with_known_effects(np.random.default_rng(8), seeds=3).table("accuracy")
    values[0, 1] = values[5, 2] = NAN
    data = in_memory(values, GRID, states={(0, 1): "failed", (5, 2): "missing"})
    analysis = analyse(data, "accuracy")
    told = " ".join(write_sentences(data, analysis))
    assert "34 of 36 runs have a value of accuracy (34 completed, 1 missing, 1 failed)" in told
    assert "may flatter" in told
    summary = next(s for s in analysis.summaries if s.point.index == 0)
    assert summary.mean == pytest.approx(np.mean([values[0, 0], values[0, 2]]))


def test_a_completed_run_that_did_not_measure_the_metric_is_told_and_listed() -> None:
    values = with_known_effects(np.random.default_rng(8), seeds=3).table("accuracy")
    values[0, 1] = NAN
    data = in_memory(values, GRID)
    told = " ".join(write_sentences(data, analyse(data, "accuracy")))
    assert "35 of 36 runs have a value of accuracy (36 completed; 1 completed without having measured it)" in told
    page = to_markdown(build_sweep_report(data, metric="accuracy"), figures="figures")
    assert "| completed | 5 | did not measure accuracy |" in page
    empty = in_memory(np.full((NUM_POINTS, 3), NAN), GRID)
    assert "--metric=train/reward" in write_sentences(empty, analyse(empty, "accuracy"))[-1]


def test_the_highest_mean_of_an_easy_seed_is_not_said_to_be_better() -> None:
    """Point 3 ran on the easy seed alone, where all others are above it: by 0.05, 0.041 and 0.03."""
    values = np.array([[0.600, 0.601, 0.950], [0.590, 0.592, 0.941], [0.581, 0.580, 0.930], [NAN, NAN, 0.900]])
    data = in_memory(values, {"a.x": (1, 2), "b.y": (3, 4)})
    told = " ".join(write_sentences(data, analyse(data, "accuracy")))
    assert "The highest mean is 0.900: x=2, y=4 (1 seed)" in told
    assert "it is worse than 3 of them" in told
    assert "it is better than" not in told


def test_differences_that_are_the_same_in_each_seed_are_not_ranked() -> None:
    data = in_memory(np.array([0.5, 0.6, 0.7]) + np.array([[0.0], [0.01], [0.02], [0.04]]), {"a": (1, 2), "b": (3, 4)})
    analysis = analyse(data, "accuracy")
    assert not analysis.can_rank
    assert "differ by the same amount in every seed" in write_sentences(data, analysis)[-1]


def test_a_metric_of_which_less_may_be_better_says_so() -> None:
    data = with_known_effects(np.random.default_rng(7), seeds=3)
    analysis = analyse(data, "accuracy")
    assert not any("called better" in line for line in write_sentences(data, analysis))
    for metric in ("train/reward", "train/rewards/correctness/mean", "benchmark/math500/pass_at_8", "eval/accuracy"):
        assert not any("called better" in line for line in write_sentences(data, replace(analysis, metric=metric)))
    for metric in ("train/kl", "train/loss", "train/reward_std", "train/completion_length/mean"):
        told = write_sentences(data, replace(analysis, metric=metric))
        assert any(f"More of {metric} is called better here" in line for line in told)


def test_points_are_told_apart_by_their_labels() -> None:
    paths = tuple(f"/scratch/somebody/a/long/way/from/home/checkpoint-{step}" for step in (100, 200))
    grid = {"reward.components.format.weight": (0.1, 0.2), "reward.components.correctness.weight": (1, 2),
            "model.path": paths, "trainer.learning_rate": (1.0000001e-5, 1.0000002e-5)}  # fmt: skip
    labels = [point.label for point in in_memory(np.zeros((16, 1)), grid).points]
    assert len(set(labels)) == 16
    assert labels[0].startswith("format.weight=0.1, correctness.weight=1, path=/scratch/some")
    assert "checkpoint-100, learning_rate=1.0000001e-05" in labels[0]
    assert max(map(len, labels)) < 130


def test_settings_that_move_together_are_one_axis() -> None:
    data = in_memory(np.random.default_rng(9).uniform(size=(4, 3)), {"a.x": (1, 2), "b.y": (3, 4)})
    assert [axis.keys for axis in data.axes] == [("a.x",), ("b.y",)]
    paired = [data.points[0], data.points[3]]
    (axis,) = find_axes(paired)
    assert (axis.keys, axis.levels) == (("a.x", "b.y"), ((1, 3), (2, 4)))
