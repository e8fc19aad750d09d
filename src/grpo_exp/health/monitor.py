"""The monitor of a run: keeps the history, asks the rules, and tells each finding once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import SEVERITIES, Finding
from grpo_exp.health.registry import Watch, build_history, build_watches
from grpo_exp.settings.run import RunSettings

_Key = tuple[str, str]


@dataclass(slots=True)
class _Told:
    """What is remembered of a finding.

    Attributes:
        rank: How serious it was when it was told, as an index into SEVERITIES; -1 where it was not.
        last_step: The last step at which it held.
        ahead: Steps and ranks at which an earlier attempt has told it, behind the step that the run goes on from.
    """

    rank: int = -1
    last_step: int = 0
    ahead: list[tuple[int, int]] = field(default_factory=list)


class HealthMonitor:
    """Looks at the metrics of each step.

    A finding is told when it is found; again only when it comes back after `health.again_after_steps` without it, or
    when it has become more serious.

    Args:
        settings: The run.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._health = settings.health
        self._facts = Facts.of(settings)
        self._watches = build_watches(settings.health.rules, self._facts) if settings.health.enabled else []
        self._history = build_history(settings.health.rules, self._facts)
        self._told: dict[_Key, _Told] = {}

    def observe(self, step: int, metrics: Mapping[str, float], non_finite: Iterable[str] = ()) -> list[Finding]:
        """Return what is new at this step.

        Args:
            step: Optimizer step, from 1; one that does not lie behind the last one goes back to there.
            metrics: Finite metrics by name.
            non_finite: Names of metrics that are NaN or infinite.
        """
        new = []
        for watch, finding in self._findings(step, metrics, non_finite):
            told = self._told.setdefault((watch.rule, watch.subject), _Told())
            if self._is_new(told, finding):
                if not self._was_told(told, finding):
                    new.append(finding)
                told.rank = SEVERITIES.index(finding.severity)
            told.last_step = step
        return new

    def replay(self, records: Iterable[Mapping[str, Any]], told: Iterable[Mapping[str, Any]]) -> None:
        """Become what it would be after a run up to a step, without telling anything.

        Args:
            records: Lines of `metrics.jsonl` up to the step that the run goes on from. Of a step that stands there
                twice the last one counts; records that are no training steps do not.
            told: Findings from `events.jsonl`, of later steps too: the reader has seen them. Those of rules that end a
                run are left out, since under such a rule the run must end again.
        """
        steps = {record["step"]: record for record in records if _is_training_step(record)}
        told = list(told)
        ranks = self._ranks(told)
        for step in sorted(steps):
            record = steps[step]
            for watch, finding in self._findings(step, record["metrics"], record.get("non_finite", ())):
                key = (watch.rule, watch.subject)
                state = self._told.setdefault(key, _Told())
                if self._is_new(state, finding):
                    state.rank = ranks.get(key, -1)
                state.last_step = step
        for key, rank in ranks.items():
            state = self._told.setdefault(key, _Told(last_step=self._history.step))
            state.rank = max(state.rank, rank)
            state.ahead = [(event["step"], SEVERITIES.index(event["kind"])) for event in told if _key(event) == key]

    def _findings(
        self, step: int, metrics: Mapping[str, float], non_finite: Iterable[str]
    ) -> Iterable[tuple[Watch, Finding]]:
        """Record a step and yield what holds at it."""
        if not self._watches:
            return
        self._history.record(step, metrics, tuple(non_finite))
        for watch in self._watches:
            verdict = watch.judge(self._history, self._facts)
            if verdict is not None:
                yield watch, Finding(watch.rule, watch.subject, watch.settings.action, step, verdict)

    def _is_new(self, told: _Told, finding: Finding) -> bool:
        is_back = finding.step - told.last_step > self._health.again_after_steps
        return is_back or SEVERITIES.index(finding.severity) > told.rank

    def _was_told(self, told: _Told, finding: Finding) -> bool:
        """Say whether an earlier attempt has told this return of a finding; on a GPU perhaps at a step nearby."""
        first = max(finding.step - self._health.again_after_steps, told.last_step + 1)
        rank = SEVERITIES.index(finding.severity)
        for place, (step, its_rank) in enumerate(told.ahead):
            if step >= first and its_rank >= rank:
                del told.ahead[: place + 1]
                return True
        return False

    def _ranks(self, told: Iterable[Mapping[str, Any]]) -> dict[_Key, int]:
        """Return how serious each finding was at most that was told, without those of rules that end a run."""
        stops = {(watch.rule, watch.subject) for watch in self._watches if watch.settings.action == "stop"}
        ranks: dict[_Key, int] = {}
        for event in told:
            key = _key(event)
            if key is not None and key not in stops:
                ranks[key] = max(ranks.get(key, -1), SEVERITIES.index(event["kind"]))
        return ranks


def _key(event: Mapping[str, Any]) -> _Key | None:
    """Return what an event is about; None where it is no finding of a step."""
    if event.get("kind") not in SEVERITIES or not {"rule", "step"} <= event.keys():
        return None
    return event["rule"], event.get("subject", "")


def _is_training_step(record: Mapping[str, Any]) -> bool:
    return record["step"] > 0 and ("train/loss" in record["metrics"] or "train/loss" in record.get("non_finite", ()))
