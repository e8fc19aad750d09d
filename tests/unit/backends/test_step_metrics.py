"""Metrics of a step from two micro-batches, weighted by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpo_exp.backends.trl.step_metrics import Accounting, StepMetrics


def account(**changes: Any) -> Accounting:
    """Return a micro-batch of 2 rows with 10 tokens, in a step of 8 rows with 40 tokens."""
    given: dict[str, Any] = {
        "loss_scale": 1.0, "tokens": 10, "rows": 2, "stand_ins": 0, "all_tokens": 40, "all_rows": 8, "left_out": 0,
        "is_last": False,
    }  # fmt: skip
    return Accounting(**{**given, **changes})


def collect(*parts: tuple[dict[str, float], Accounting], sequence_level: bool = False) -> dict[str, float]:
    """Return what is logged behind the last part; before that nothing is."""
    metrics, found = StepMetrics(sequence_level=sequence_level), {}
    for values, accounting in parts:
        assert not found
        found = metrics.add({name: [value] for name, value in values.items()}, accounting)
    return found


def test_entropy_and_kl_are_means_over_the_tokens_that_were_run() -> None:
    """(10 x 1.0 + 30 x 2.0) / 40 = 1.75; the plain mean of the micro-batches would be 1.5."""
    parts = [({"entropy": 1.0, "kl": 0.1}, account()), ({"entropy": 2.0, "kl": 0.5}, account(tokens=30, is_last=True))]
    assert collect(*parts) == {"entropy": pytest.approx(1.75), "kl": pytest.approx(0.4)}


def test_shares_of_what_is_clipped_count_the_tokens_that_were_left_out() -> None:
    """10 x 0.2 + 10 x 0.4 = 6 clipped tokens of 40, 20 of which were not run."""
    parts = [({"clip_ratio/region_mean": 0.2}, account()), ({"clip_ratio/region_mean": 0.4}, account(is_last=True))]
    assert collect(*parts) == {"clip_ratio/region_mean": pytest.approx(0.15)}


def test_shares_of_sequences_count_rows() -> None:
    """2 x 0.5 + 2 x 1.0 = 3 clipped sequences of 8."""
    parts = [({"clip_ratio/low_mean": 0.5}, account()), ({"clip_ratio/low_mean": 1.0}, account(is_last=True))]
    assert collect(*parts, sequence_level=True) == {"clip_ratio/low_mean": pytest.approx(0.375)}


def test_extremes_are_those_of_the_step_and_a_row_that_was_left_out_is_unclipped() -> None:
    values = {"clip_ratio/low_min": 0.2, "clip_ratio/high_max": 0.3}
    later = {"clip_ratio/low_min": 0.1, "clip_ratio/high_max": math.nan}
    both = collect((values, account()), (later, account(is_last=True)))
    assert both == {"clip_ratio/low_min": 0.1, "clip_ratio/high_max": 0.3}
    fewer = collect((values, account(left_out=1, is_last=True)))
    assert fewer == {"clip_ratio/low_min": 0.0, "clip_ratio/high_max": 0.3}


def test_vespo_weights_leave_stand_ins_out() -> None:
    """Two rows at 0.4; beside them one row at 0.7 and a stand-in at 1: (0.8 + 2 x 0.85 - 1) / 3 = 0.5."""
    parts = [
        ({"vespo/phi_seq_mean": 0.4}, account()),
        ({"vespo/phi_seq_mean": 0.85}, account(stand_ins=1, is_last=True)),
    ]
    assert collect(*parts) == {"vespo/phi_seq_mean": pytest.approx(0.5)}


def test_mean_over_nothing_is_absent() -> None:
    nothing = account(tokens=0, rows=1, stand_ins=1, left_out=8, is_last=True)
    found = collect(({"entropy": 0.0, "clip_ratio/low_mean": 0.0, "clip_ratio/low_min": math.nan}, nothing))
    assert found == {"clip_ratio/low_mean": 0.0, "clip_ratio/low_min": 0.0}


def test_micro_batch_that_was_not_run_ends_the_step() -> None:
    parts = [({"entropy": 1.0}, account()), ({}, account(tokens=0, rows=0, is_last=True))]
    assert collect(*parts) == {"entropy": 1.0}


def test_steps_do_not_mix() -> None:
    metrics = StepMetrics(sequence_level=False)
    assert metrics.add({"entropy": [1.0]}, account(is_last=True)) == {"entropy": 1.0}
    assert metrics.add({"entropy": [3.0]}, account(is_last=True)) == {"entropy": 3.0}


def test_other_metrics_pass_at_once() -> None:
    assert StepMetrics(sequence_level=False).add({"new": [2.0]}, account()) == {"new": 2.0}
