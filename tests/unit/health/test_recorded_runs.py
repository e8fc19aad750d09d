"""What the monitor says about real runs of the built-in model: healthy ones, and some that were made ill on purpose.

The steps were worked out from the curves in tests/cases; the comments say how.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.health.recorded import CASES, found_in

HEALTHY = sorted((CASES / "healthy").glob("*.jsonl"))

Told = list[tuple[str, str, int, int]]
#: Run -> (rule, subject, step, since) of each warning, by step.
SICK: dict[str, Told] = {
    # Learning rate 1e-2, a hundred times too high: correctness is 0.43 at step 1 and 0 from step 2 on.
    "high_rate": [
        ("kl_drift", "kl", 2, 2),  # 6.63 at step 2
        # Best mean (0.525 + 0 + 0) / 3 = 0.175; the mean of ten at step 10 is 0.053, less by more than 0.0525.
        ("reward_collapse", "", 10, 2),
        ("no_signal", "", 10, 2),  # zero_std 0 at step 1 and 1 from step 2 on: mean 0.9 at step 10
        ("kl_drift", "kl_from_start", 10, 10),  # first measured there: 3.18
        ("truncation", "", 11, 2),  # 0.91 to 1 from step 2 to 11
        ("constant_component", "correctness", 21, 2),  # std 0 from step 2 on: twenty points at step 21
        # Format: 0.9961 / 10 = 0.100 at first; 0.193 over steps 14 to 23, 0.221 over 15 to 24; above 0.2 since 19.
        ("format_hacking", "format", 24, 19),
    ],
    # A limit of 8 tokens, where answers take up to 15.
    "short_limit": [
        ("no_signal", "", 10, 1),  # zero_std from 0.84 to 1, mean of the first ten 0.95
        ("truncation", "", 10, 1),
        ("constant_component", "correctness", 20, 1),
    ],
    # Temperature 0.1: the most likely answers are right.
    "too_easy": [("no_signal", "", 10, 2)],  # zero_std is 0.44 at step 1, then 0.91 or more: mean of ten 0.92
    # Operands to 999, where the policy is primed on those to 29; 18 steps. zero_std: mean 0.894 over steps 1 to 10,
    # 0.909 over 2 to 11, 0.84 at step 2 and 0.94 at step 3. What still varies is the form.
    "too_hard": [("no_signal", "", 11, 3)],
    # A form with line breaks that the policy was never shown, at weight 0.1: std 0 from the start; 24 steps.
    "constant": [("constant_component", "format", 20, 1)],
    # Eight updates for each batch at a rate ten times too high: kl 0.89 at step 5, 2.93 at step 8.
    "off_policy": [("kl_drift", "kl", 8, 8)],
    # Format 1.0 and correctness 0.05: format is at 0.99 from the start, so that the group's spread is that of
    # correctness, which rises to 0.91. Not ill after all.
    "format_hack": [],
    # Temperature 2: correctness stays at 0.02, format rises from 0.52 to 0.61, by less than 0.1 in 25 steps.
    "hot": [],
}


def test_five_seeds_and_three_algorithms_were_recorded() -> None:
    """Guards the next test against looking at nothing."""
    assert {path.stem for path in HEALTHY} >= {*(f"dapo_{seed}" for seed in range(5)), "grpo_0", "dr_grpo_0"}


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_healthy_run_leads_to_no_finding_above_info(path: Path) -> None:
    assert [finding.text for finding in found_in(path) if finding.severity != "info"] == []


@pytest.mark.parametrize("name", sorted(SICK))
def test_sick_run_is_told(name: str) -> None:
    found = [finding for finding in found_in(CASES / "sick" / f"{name}.jsonl") if finding.severity != "info"]
    assert [(f.rule, f.subject, f.step, f.verdict.since) for f in found] == SICK[name]


def test_every_recorded_run_is_looked_at() -> None:
    assert {path.stem for path in (CASES / "sick").glob("*.jsonl")} == set(SICK)


@pytest.mark.parametrize(
    ("name", "rule", "text", "advice"),
    [
        ("high_rate", "no_signal", "no longer solves what it solved at step 1 (0.426)", "trainer.learning_rate"),
        ("high_rate", "kl_drift", "kl is 6.63 nats per token", "trainer.learning_rate"),
        ("short_limit", "no_signal", "100% of the completions are cut off before their answer", "(now 8)"),
        ("short_limit", "truncation", "hit the limit of 8 tokens", "raise trainer.max_completion_length"),
        ("too_hard", "no_signal", "(mean correctness 0.001): the prompts are too hard", "lower dataset.max_operand"),
        ("constant", "constant_component", "format was 0.000 for every completion", "reward.components.format"),
        ("too_easy", "no_signal", "(mean correctness 0.977): the prompts are too easy", "raise dataset.max_operand"),
        ("off_policy", "kl_drift", "kl is 2.93 nats per token", "trainer.learning_rate"),
    ],
)
def test_sentence_names_the_cause_and_the_setting_to_change(name: str, rule: str, text: str, advice: str) -> None:
    finding = next(f for f in found_in(CASES / "sick" / f"{name}.jsonl") if f.rule == rule)
    assert text in finding.text
    assert advice in finding.verdict.advice
