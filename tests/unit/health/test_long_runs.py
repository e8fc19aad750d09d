"""What happens late in a run, or in a rough one: measured against more than its first steps, never against nothing."""

from __future__ import annotations

import math

from grpo_exp.health.monitor import HealthMonitor
from unit.health.histories import CORRECT, FORMAT, LENGTH, ZERO_STD, findings, flat, settings_of, told

LONG = "trainer.max_completion_length=4096"
NORM = "train/grad_norm"
SPREAD = "train/sampling/sampling_logp_difference/max"


def line(first: float, last: float, num_steps: int) -> list[float]:
    return [first + (last - first) * place / (num_steps - 1) for place in range(num_steps)]


def test_length_that_explodes_behind_a_plateau_is_told() -> None:
    """Correct rises from 0.3 to 0.6 in 60 steps, stands still, and from step 101 on the length goes from 400 to 1800.

    Against the first ten steps (about 300 tokens) correctness has gained 0.3, which would excuse any length.
    """
    curves = {CORRECT: [*line(0.3, 0.6, 60), *flat(0.6, 140)], LENGTH: [*flat(400, 100), *line(400, 1800, 100)]}
    (finding,) = findings(curves, LONG)
    assert (finding.rule, finding.severity) == ("length_explosion", "warning")
    assert 101 < finding.step < 150
    assert "from 400 to 803 tokens, while mean correctness changed by +0.008" in finding.text


def test_length_that_grows_with_correctness_for_long_is_not_told() -> None:
    """As in DeepSeek-R1-Zero: 500 to 3000 tokens in 300 steps, with 0.15 to 0.7 right answers."""
    assert told({CORRECT: line(0.15, 0.7, 300), LENGTH: line(500, 3000, 300)}, LONG) == []


def test_form_that_is_pleased_behind_an_early_gain_is_told() -> None:
    """Correct gains 0.15 in the first 30 steps; from step 81 on only the form rises, from 0.3 to 0.9."""
    curves = {CORRECT: [*line(0.2, 0.35, 30), *flat(0.35, 120)], FORMAT: [*flat(0.3, 80), *line(0.3, 0.9, 70)]}
    found = told(curves)
    assert [(severity, rule) for severity, rule, _, _ in found] == [("warning", "format_hacking")]
    assert 81 < found[0][2] < 110


def test_form_that_catches_up_where_the_task_is_solved_is_not_told() -> None:
    curves = {CORRECT: [*line(0.2, 0.95, 60), *flat(0.95, 90)], FORMAT: [*flat(0.6, 80), *line(0.6, 0.95, 70)]}
    assert told(curves) == []


def test_form_that_ends_its_rise_behind_a_plateau_is_not_told() -> None:
    """Form is at 0.85 as correctness levels off at 0.5, and comes to 0.97."""
    curves = {CORRECT: [*line(0.2, 0.5, 60), *flat(0.5, 90)], FORMAT: [*line(0.4, 0.85, 50), *line(0.85, 0.97, 100)]}
    assert told(curves) == []


def test_a_share_that_reaches_its_bound_but_for_rounding_is_told() -> None:
    """Nine of ten groups, in 32 bits; and the number before 0.9, whose mean over ten is 0.9 while no value is."""
    for share in (0.8999999761581421, math.nextafter(0.9, 0)):
        assert told({ZERO_STD: flat(share, 10)}) == [("warning", "no_signal", 10, 1)]


# ------------------------------------------------------------------------------- gradients


def test_a_gradient_behind_batches_without_signal_is_no_spike() -> None:
    """Thirty batches in which all groups are dead: no gradient, or only the tiny one of KL."""
    shares = [*flat(1.0, 30), 0.5]
    assert [rule for _, rule, _, _ in told({NORM: [*flat(0.0, 30), 1.5]})] == []
    curves = {NORM: [*flat(1e-4, 30), 1.5], ZERO_STD: shares}
    assert "gradient_spike" not in [rule for _, rule, _, _ in told(curves)]


def test_a_spike_between_batches_without_signal_is_told() -> None:
    """Every other batch is dead; the others have norms of 0.5, and at step 61 comes 40."""
    curves = {NORM: [*([0.5, 0.0] * 30), 40.0]}
    assert told(curves) == [("warning", "gradient_spike", 61, 61)]


def test_a_gradient_that_overflows_in_fp16_ends_a_run_only_where_it_goes_on() -> None:
    """The scaler begins at 2^16 and halves: 16 skipped steps are its search, and the next one is broken."""
    monitor = HealthMonitor(settings_of("launch.mixed_precision=fp16", "vllm=off"))
    for step in range(1, 17):
        assert monitor.observe(step, {"train/loss": 0.1}, [NORM]) == []
    (finding,) = monitor.observe(17, {"train/loss": 0.1}, [NORM])
    assert (finding.rule, finding.action, finding.severity) == ("not_finite", "stop", "critical")
    again = HealthMonitor(settings_of("launch.mixed_precision=fp16"))
    for step in range(1, 100):  # one now and then
        assert again.observe(step, {"train/loss": 0.1}, [NORM] if step % 2 else []) == []
    (finding,) = again.observe(100, {}, ["train/loss", NORM])
    assert finding.action == "stop"


def test_another_metric_that_is_not_finite_is_told_and_ends_nothing() -> None:
    """The engine gave a token no probability: an infinite difference, beside a loss and a gradient that are sound."""
    (finding,) = HealthMonitor(settings_of()).observe(1, {"train/loss": 0.1, NORM: 0.5}, [SPREAD])
    assert (finding.rule, finding.subject, finding.severity) == ("not_finite", "other curves", "warning")
    assert finding.action == "alert"
    assert "broken" not in finding.text
