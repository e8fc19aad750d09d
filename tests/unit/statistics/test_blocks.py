"""The comparison of points over shared seeds equals textbook results where these exist."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from grpo_exp.statistics.blocks import BlockDesign, first_of_twins, residual_variances
from grpo_exp.statistics.variance import moderate

NAN = float("nan")


def test_two_points_are_compared_by_the_paired_t_test() -> None:
    values = np.array([[0.1, 0.5, 0.3, 0.9], [0.2, 0.7, 0.35, 1.2]])
    contrast = BlockDesign(values).contrast([(0, 1)])
    expected = stats.ttest_rel(values[1], values[0])
    assert contrast is not None
    assert contrast.degrees == pytest.approx(3)
    assert contrast.p_value == pytest.approx(expected.pvalue)
    assert tuple(contrast.interval()) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_variances_are_those_of_the_two_way_analysis() -> None:
    """Complete table: residuals `y_ps - m_p - m_s + m`, (P - 1)(S - 1) degrees in all, as many for each point."""
    values = np.random.default_rng(0).normal(size=(5, 3))
    residuals = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    own, degrees = residual_variances(values)
    assert degrees == pytest.approx(np.full(5, 4 * 2 / 5))
    assert own * degrees == pytest.approx((residuals**2).sum(1))


def test_variances_of_an_incomplete_table_are_those_of_least_squares() -> None:
    """Dummy variables for points and seeds; leverages are the diagonal of the hat matrix."""
    values = np.random.default_rng(1).normal(size=(4, 3))
    values[0, 1] = values[3, 2] = values[2, 0] = NAN
    rows = [(p, s) for p in range(4) for s in range(3) if not np.isnan(values[p, s])]
    design = np.array([[p == i for i in range(4)] + [s == j for j in range(3)] for p, s in rows], dtype=float)
    hat = design @ np.linalg.pinv(design)
    seen = np.array([values[p, s] for p, s in rows])
    residuals, leverages = seen - hat @ seen, np.diag(hat)
    own, degrees = residual_variances(values)
    for point in range(4):
        mine = [i for i, (p, _) in enumerate(rows) if p == point]
        assert degrees[point] == pytest.approx((1 - leverages[mine]).sum())
        assert own[point] * degrees[point] == pytest.approx((residuals[mine] ** 2).sum())


def test_what_a_seed_adds_to_all_points_does_not_matter() -> None:
    values = np.random.default_rng(2).normal(size=(4, 3))
    shifted = values + np.array([0.0, 10.0, -5.0])
    before, after = (BlockDesign(table).all_pairs() for table in (values, shifted))
    assert before.keys() == after.keys()
    assert [c.p_value for c in before.values()] == pytest.approx([c.p_value for c in after.values()])


def test_all_pairs_are_the_contrasts_of_single_pairs() -> None:
    values = np.random.default_rng(3).normal(size=(6, 3)) * np.array([1, 1, 1, 9, 1, 9])[:, None]
    values[1, 0] = NAN
    design = BlockDesign(values)
    found = design.all_pairs()
    assert len(found) == 15
    for pair, contrast in found.items():
        single = design.contrast([pair])
        assert single is not None
        assert (contrast.difference, contrast.standard_error, contrast.degrees, contrast.p_value) == pytest.approx(
            (single.difference, single.standard_error, single.degrees, single.p_value)
        )


def test_one_seed_compares_nothing() -> None:
    design = BlockDesign(np.array([[0.1], [0.9]]))
    assert not design.can_compare
    assert design.contrast([(0, 1)]) is None
    assert design.all_pairs() == {}


def test_points_without_a_common_seed_are_not_compared() -> None:
    values = np.array([[0.1, 0.2, NAN, NAN], [NAN, NAN, 0.8, 0.9], [0.3, 0.5, 0.4, 0.6]])
    assert BlockDesign(values).contrast([(0, 1)]) is None


def test_marginal_effect_is_the_mean_over_matched_pairs() -> None:
    """Pairs differ by 0.2 and 0.4 on average, so the effect is 0.3, with the variances of four points over 4 · 3."""
    noise = np.array([[0.01, -0.01, 0.0], [0.0, 0.01, -0.01], [-0.01, 0.0, 0.01], [0.01, 0.0, -0.01]])
    values = np.array([0.1, 0.3, 0.5, 0.9])[:, None] + noise
    design = BlockDesign(values)
    contrast = design.contrast([(0, 1), (2, 3)])
    assert contrast is not None
    assert contrast.difference == pytest.approx(0.3)
    assert contrast.num_pairs == 6
    assert contrast.standard_error**2 == pytest.approx(design.variances.own.sum() / (4 * 3))


def test_twins_are_points_that_agree_in_two_seeds_or_more_and_in_all_that_both_have() -> None:
    values = np.array([
        [0.1, 0.2, 0.3],
        [0.1, 0.2, 0.3],  # of the first
        [0.1, 0.2, 0.4],  # differs in one seed
        [NAN, 0.2, 0.3],  # of the first: lost a run
        [0.1, NAN, NAN],  # one seed says nothing
        [1.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],  # reached the same bound, which other runs may, too
    ])  # fmt: skip
    assert first_of_twins(values).tolist() == [0, 0, 2, 0, 4, 5, 6]


def test_a_setting_that_changes_nothing_does_not_make_one_experiment_count_as_two() -> None:
    """Points (a, x), (a, y), (b, x), (b, y) where x and y give the same runs: b against a is one paired comparison."""
    two = np.random.default_rng(4).normal(size=(2, 4))
    design = BlockDesign(two.repeat(2, axis=0))
    marginal, single = design.contrast([(0, 2), (1, 3)]), BlockDesign(two).contrast([(0, 1)])
    assert marginal is not None
    assert single is not None
    assert marginal.difference == pytest.approx(single.difference)
    assert marginal.standard_error == pytest.approx(single.standard_error)
    assert marginal.p_value == pytest.approx(single.p_value)
    nothing = design.contrast([(0, 1), (2, 3)])
    assert nothing is not None
    assert (nothing.difference, nothing.p_value) == (0.0, 1.0)


def test_rounding_is_no_noise() -> None:
    """0.6 - 0.5 is not 0.61 - 0.51 in floating-point numbers: no reason to call a difference of 0.01 certain."""
    seeds = np.array([0.5, 0.6, 0.7])
    design = BlockDesign(np.array([seeds, seeds + 0.01, seeds + 0.02, seeds + 0.04]))
    assert not design.can_compare


def test_equal_variances_are_pooled_and_unequal_ones_are_kept_apart() -> None:
    degrees = np.full(40, 2.0)
    chance = stats.chi2(2).ppf((np.arange(40) + 0.5) / 40) / 2  # what one variance for all looks like
    pooled = moderate(chance, degrees)
    assert np.isinf(pooled.prior_degrees)
    assert pooled.values == pytest.approx(np.full(40, chance.mean()))
    apart = moderate(chance * np.where(np.arange(40) % 2, 1, 100.0), degrees)
    assert apart.prior_degrees < 4
    assert np.median(apart.values[0::2]) > 10 * np.median(apart.values[1::2])


def test_prior_degrees_are_found_again() -> None:
    """Variances drawn as in the model with d0 = 6, s0² = 2 and 4 degrees each; 4,000 of them leave little chance."""
    generator = np.random.default_rng(4)
    true = 6 * 2 / generator.chisquare(6, size=4000)
    found = moderate(true * generator.chisquare(4, size=4000) / 4, np.full(4000, 4.0))
    assert found.prior_degrees == pytest.approx(6, rel=0.15)
