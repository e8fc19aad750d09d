"""Rules over metric histories. Pure: they are given numbers and return findings."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grpo_exp.settings.health import HealthSettings

#: Counts of a component that are no verdict about the completion -> what they mean, and what to do.
_CHECKER_OUTCOMES = {
    "timeout": "kept the checker busy beyond its time limit and scored 0; look at them before raising "
    "reward.engine.timeout_seconds",
    "crash": "killed the checker and scored 0; look at them before raising reward.engine.memory_gib",
    "unjudgeable": "have a target that cannot be judged, so their rows are left out; correct the data",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something an expert would have noticed: what, since when it counts, and what to try."""

    rule: str
    severity: Literal["warning", "critical"]
    step: int
    text: str


class HealthMonitor:
    """Looks at the metrics of each step; each rule speaks once."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._history: deque[Mapping[str, float]] = deque(maxlen=settings.window)
        self._told: set[str] = set()

    def observe(self, step: int, metrics: Mapping[str, float], non_finite: list[str]) -> list[Finding]:
        """Return what is new at this step.

        Args:
            step: Optimizer step, from 1.
            metrics: Finite metrics by name.
            non_finite: Names of metrics that are NaN or infinite.
        """
        if not self._settings.enabled:
            return []
        self._history.append(metrics)
        findings = [
            *self._not_finite(step, non_finite),
            *self._dead_groups(step),
            *self._truncated(step),
            *self._checker(step),
        ]
        new = [finding for finding in findings if finding.rule not in self._told]
        self._told.update(finding.rule for finding in new)
        return new

    def _not_finite(self, step: int, names: list[str]) -> list[Finding]:
        if not names:
            return []
        text = f"{', '.join(names)} is not finite: the update is broken; lower trainer.learning_rate"
        return [Finding("not_finite", "critical", step, text)]

    def _dead_groups(self, step: int) -> list[Finding]:
        lowest = self._lowest("train/frac_reward_zero_std")
        if lowest is None or lowest < self._settings.dead_groups:
            return []
        reward = self._history[-1].get("train/reward")
        text = (
            f"{lowest:.0%} or more of the groups had equal rewards over {self._settings.window} steps (reward "
            f"now {'unknown' if reward is None else f'{reward:.3f}'}): hardly any gradient is left; the prompts "
            "are too easy or too hard for this model, or G is too small"
        )
        return [Finding("dead_groups", "warning", step, text)]

    def _truncated(self, step: int) -> list[Finding]:
        lowest = self._lowest("train/completion_length/truncated_fraction")
        if lowest is None or lowest < self._settings.truncated:
            return []
        text = (
            f"{lowest:.0%} or more of the completions hit the limit over {self._settings.window} steps: "
            "their answers are cut off; raise trainer.max_completion_length"
        )
        return [Finding("truncated", "warning", step, text)]

    def _checker(self, step: int) -> list[Finding]:
        """Tell once for each component that completions could not be judged, or that the checker gave up on some."""
        findings = []
        for name, count in self._history[-1].items():
            component, _, outcome = name.removeprefix("train/rewards/").rpartition("/")
            if name.startswith("train/rewards/") and outcome in _CHECKER_OUTCOMES and count > 0:
                text = f"{component}: {count:g} completions {_CHECKER_OUTCOMES[outcome]}"
                findings.append(Finding(f"{outcome}:{component}", "warning", step, text))
        return findings

    def _lowest(self, name: str) -> float | None:
        """Return the lowest value over a full window, or None while the window is not full of this metric."""
        values = [metrics[name] for metrics in self._history if name in metrics]
        return min(values) if len(values) == self._settings.window else None
