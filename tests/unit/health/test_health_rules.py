"""Rules over metric histories, with the steps counted out."""

from __future__ import annotations

from typing import Any

from grpo_exp.health.rules import Finding, HealthMonitor
from grpo_exp.settings.health import HealthSettings

DEAD, TRUNCATED = "train/frac_reward_zero_std", "train/completion_length/truncated_fraction"


def observe(values: list[dict[str, float]], **settings: Any) -> list[Finding]:
    monitor = HealthMonitor(HealthSettings(**settings))
    found: list[Finding] = []
    for step, metrics in enumerate(values, start=1):
        found += monitor.observe(step, metrics, [])
    return found


def test_dead_groups_over_a_whole_window_are_told_once() -> None:
    """Window 3: steps 1 to 3 at 0.95 are told at step 3, and not again at 4 and 5."""
    (finding,) = observe([{DEAD: 0.95, "train/reward": 0.25}] * 5, window=3, dead_groups=0.9)
    assert (finding.rule, finding.severity, finding.step) == ("dead_groups", "warning", 3)
    assert "95% or more of the groups had equal rewards over 3 steps (reward now 0.250)" in finding.text


def test_one_live_step_in_the_window_is_enough() -> None:
    """1, 1, 0.5, 1, 1, 1: the first window of three without the 0.5 ends at step 6."""
    values = [{DEAD: value} for value in (1, 1, 0.5, 1, 1, 1)]
    assert [finding.step for finding in observe(values, window=3)] == [6]
    assert observe(values[:5], window=3) == []


def test_threshold_itself_counts() -> None:
    assert len(observe([{DEAD: 0.9}], window=1, dead_groups=0.9)) == 1
    assert observe([{DEAD: 0.89}], window=1, dead_groups=0.9) == []


def test_step_without_the_metric_is_not_taken_for_a_dead_one() -> None:
    """Steps that generate nothing have no such metric: a window is full only of real values."""
    assert observe([{DEAD: 1.0}, {}, {DEAD: 1.0}], window=3) == []


def test_unknown_reward_is_said_to_be_unknown() -> None:
    (finding,) = observe([{DEAD: 1.0}], window=1)
    assert "(reward now unknown)" in finding.text


def test_truncation_names_the_setting_to_raise() -> None:
    (finding,) = observe([{TRUNCATED: 0.6}] * 2, window=2, truncated=0.5)
    assert (finding.rule, finding.severity, finding.step) == ("truncated", "warning", 2)
    assert "60% or more of the completions hit the limit over 2 steps" in finding.text
    assert "raise trainer.max_completion_length" in finding.text


def test_loss_that_is_not_finite_is_critical_at_once_and_once() -> None:
    monitor = HealthMonitor(HealthSettings(window=10))
    (finding,) = monitor.observe(1, {}, ["train/loss", "train/grad_norm"])
    assert (finding.rule, finding.severity, finding.step) == ("not_finite", "critical", 1)
    assert finding.text.startswith("train/loss, train/grad_norm is not finite")
    assert monitor.observe(2, {}, ["train/loss"]) == []


def test_two_rules_can_speak_at_one_step() -> None:
    rules = {finding.rule for finding in observe([{DEAD: 1.0, TRUNCATED: 1.0}], window=1)}
    assert rules == {"dead_groups", "truncated"}


def test_nothing_is_said_when_switched_off() -> None:
    monitor = HealthMonitor(HealthSettings(enabled=False, window=1))
    assert monitor.observe(1, {DEAD: 1.0}, ["train/loss"]) == []


def test_checker_that_gives_up_is_told_once_for_each_component() -> None:
    """Three time-outs at step 1 and five at step 2 are one finding; wrong answers are none."""
    monitor = HealthMonitor(HealthSettings())
    seen = monitor.observe(1, {"train/rewards/correctness/timeout": 3.0, "train/rewards/correctness/wrong": 9.0}, [])
    assert [(finding.rule, finding.severity) for finding in seen] == [("timeout:correctness", "warning")]
    assert seen[0].text.startswith("correctness: 3 completions kept the checker busy")
    assert monitor.observe(2, {"train/rewards/correctness/timeout": 5.0}, []) == []
    assert [f.rule for f in monitor.observe(3, {"train/rewards/code/crash": 1.0}, [])] == ["crash:code"]
