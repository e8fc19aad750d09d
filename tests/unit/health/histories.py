"""Histories written down curve by curve, and what a monitor says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from grpo_exp.health.finding import Finding
from grpo_exp.health.monitor import HealthMonitor
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings

Curves = Mapping[str, Sequence[float | None]]

ZERO_STD = "train/frac_reward_zero_std"
CORRECT = "train/rewards/correctness/mean"
FORMAT = "train/rewards/format/mean"
REWARD = "train/reward"
LENGTH = "train/completion_length/mean"
CUT = "train/completion_length/truncated_fraction"


@cache
def settings_of(*words: str) -> RunSettings:
    """Return settings: by default 32 prompts x 8 completions of at most 20 tokens, one update for each batch."""
    return load.to_settings(load.compose(["tracker=none", *words]))


def with_rules(settings: RunSettings, *words: str) -> RunSettings:
    """Return settings in which rules have other values; a word is `RULE.FIELD=VALUE`."""
    data = settings.model_dump(mode="json")
    for word in words:
        path, _, value = word.partition("=")
        rule, _, field = path.partition(".")
        data["health"]["rules"][rule][field] = value
    return RunSettings.model_validate(data)


def findings(curves: Curves, *words: str) -> list[Finding]:
    """Return what a monitor says about curves from step 1 on; None is a step without the metric.

    Args:
        curves: Name -> values.
        words: Settings besides the default; `RULE.FIELD=VALUE` for those of a rule.
    """
    of_rules = [word for word in words if word.partition(".")[0] in _RULES]
    settings = with_rules(settings_of(*(word for word in words if word not in of_rules)), *of_rules)
    monitor, found = HealthMonitor(settings), []
    for step in range(1, max(map(len, curves.values())) + 1):
        metrics = {name: value for name, values in curves.items() if (value := values[step - 1]) is not None}
        found += monitor.observe(step, metrics)
    return found


def told(curves: Curves, *words: str) -> list[tuple[str, str, int, int]]:
    """Return severity, rule, step and since of each finding."""
    return [(f.severity, f.rule, f.step, f.verdict.since) for f in findings(curves, *words)]


def flat(value: float, num_steps: int) -> list[float]:
    """Return a curve that does not move."""
    return [value] * num_steps


_RULES = frozenset(dict(settings_of().health.rules))
