"""What a rule says, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpo_exp.settings.health_rules import Action

Severity = Literal["info", "warning", "critical"]

#: From harmless to serious.
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


def at_least(share: float) -> str:
    """Write the lowest share of a window: it is the least of several, unless it is all."""
    return "100%" if share == 1 else f"{share:.0%} or more"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says about a history.

    Attributes:
        severity: How bad it is.
        since: First optimizer step from which it has held without a break, as far as the history goes back.
        text: What is seen, with numbers.
        why: Why it matters.
        advice: What to try, with the names of settings.
    """

    severity: Severity
    since: int
    text: str
    why: str
    advice: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict that is told.

    Attributes:
        rule: Name of the rule, as under `health.rules`.
        subject: What of several it is about, such as a component; empty where there is only one.
        action: What the settings say is to be done about it.
        step: Optimizer step at which it was found.
        verdict: What the rule says.
    """

    rule: str
    subject: str
    action: Action
    step: int
    verdict: Verdict

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.verdict.severity

    @property
    def text(self) -> str:
        """What is seen, with numbers."""
        return self.verdict.text

    def fields(self) -> dict[str, str | int]:
        """Return what stands in the event besides kind (the severity) and text."""
        verdict = self.verdict
        named = {"subject": self.subject} if self.subject else {}
        return {"rule": self.rule, **named, "action": self.action, "step": self.step, "since": verdict.since,
                "why": verdict.why, "advice": verdict.advice}  # fmt: skip
