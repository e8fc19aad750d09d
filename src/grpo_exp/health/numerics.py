"""Rules on numbers that break an update."""

from __future__ import annotations

from grpo_exp.health.curves import median
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import GradientSpikeRule, NotFiniteRule

_GRAD_NORM = "train/grad_norm"


def not_finite(history: History, facts: Facts, *, rule: NotFiniteRule) -> Verdict | None:
    """Tell that a metric of this step is NaN or infinite."""
    names = history.non_finite
    if not names:
        return None
    text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite: the update is broken"
    why = "the weights are broken by now, and every further step keeps them so"
    advice = (
        "lower trainer.learning_rate, look for rewards or weights of enormous size; in 16 bits try "
        "launch.mixed_precision=bf16 or no"
    )
    return Verdict("critical", history.step, text, why, advice)


def gradient_spike(history: History, facts: Facts, *, rule: GradientSpikeRule) -> Verdict | None:
    """Tell that the gradient norm of this step is many times the median before it, and above what is clipped."""
    curve = history.curve(_GRAD_NORM)
    earlier = curve.last(rule.window, before=1)
    if not earlier or curve.latest_step != history.step:
        return None
    value, usual = curve.last(1)[0].value, median(earlier)
    if value <= facts.max_grad_norm or value < rule.factor * usual:
        return None
    text = f"grad_norm {value:.3g} against a median of {usual:.3g} over {rule.window} steps"
    why = (
        f"the step is scaled down to trainer.max_grad_norm ({facts.max_grad_norm:g}), but its direction is that of a "
        "few completions"
    )
    advice = (
        "look at the batch's completions and rewards; lower trainer.learning_rate or trainer.max_grad_norm, raise "
        "trainer.prompts_per_step"
    )
    return Verdict("warning", history.step, text, why, advice)
