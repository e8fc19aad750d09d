"""Holm's correction and the Pareto set, worked out by hand."""

from __future__ import annotations

import pytest

from grpo_exp.statistics.corrections import holm
from grpo_exp.statistics.pareto import pareto_set


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1 gives 0.04, 0.06, 0.06 (not below 0.06), 0.5.
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])


def test_holm_is_cut_at_one_and_knows_no_tests() -> None:
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_pareto_set_holds_what_nothing_cheaper_equals() -> None:
    # Cost 3 for 0.5 is beaten by cost 2 for 0.7; cost 4 for 0.7 costs more for the same.
    costs, qualities = [1.0, 3.0, 2.0, 4.0, 5.0], [0.2, 0.5, 0.7, 0.7, 0.9]
    assert pareto_set(costs, qualities) == [0, 2, 4]


def test_pareto_set_keeps_equal_points() -> None:
    assert pareto_set([1.0, 1.0, 1.0], [0.5, 0.5, 0.4]) == [0, 1]
