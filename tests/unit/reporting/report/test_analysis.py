"""What a report names: nothing where nothing is, the true effects where there are some, and nothing with one seed."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_exp.reporting.report.analysis import ALPHA, Analysis, analyse
from grpo_exp.reporting.report.sentences import write_sentences
from grpo_exp.reporting.report.sweep_data import SweepData, find_axes
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


def test_settings_that_move_together_are_one_axis() -> None:
    data = in_memory(np.random.default_rng(9).uniform(size=(4, 3)), {"a.x": (1, 2), "b.y": (3, 4)})
    assert [axis.keys for axis in data.axes] == [("a.x",), ("b.y",)]
    paired = [data.points[0], data.points[3]]
    (axis,) = find_axes(paired)
    assert (axis.keys, axis.levels) == (("a.x", "b.y"), ((1, 3), (2, 4)))
