"""Rules on numbers that break an update."""

from __future__ import annotations

from grpo_exp.health.curves import median
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import GradientSpikeRule, NotFiniteRule

_GRAD_NORM = "train/grad_norm"
_ZERO_STD = "train/frac_reward_zero_std"
#: What an update is made of: where one of them is broken, the weights are.
_OF_THE_UPDATE = ("train/loss", _GRAD_NORM)
#: The scaler of fp16 begins at 2^16 and halves the loss at each overflow: behind so many it scales no more.
_MOST_SKIPPED_STEPS = 16


def not_finite(history: History, facts: Facts, *, rule: NotFiniteRule) -> Verdict | None:
    """Tell that loss or gradient norm of this step are NaN or infinite.

    With fp16 a gradient that overflows is how the scaler finds its scale: that step is skipped, and no weight is broken
    unless it goes on like that.
    """
    names = [name for name in history.non_finite if name in _OF_THE_UPDATE]
    if facts.scales_loss and names == [_GRAD_NORM] and history.non_finite_steps(_GRAD_NORM) <= _MOST_SKIPPED_STEPS:
        return None
    if not names:
        return None
    text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite: the update is broken"
    why = "the weights are broken by now, and every further step keeps them so"
    advice = (
        "lower trainer.learning_rate, look for rewards or weights of enormous size; in 16 bits try "
        "launch.mixed_precision=bf16 or no"
    )
    return Verdict("critical", history.step, text, why, advice)


def gap(history: History, facts: Facts, *, rule: NotFiniteRule) -> Verdict | None:
    """Tell that another metric of this step is NaN or infinite: a curve has a gap; the update need not be broken."""
    names = [name for name in history.non_finite if name not in _OF_THE_UPDATE]
    if not names:
        return None
    text = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite: no tracker shows the value"
    why = "something overflowed or was divided by nothing, which often comes before a broken update"
    advice = (
        "look at the completions of the step; kl overflows where the policy is far away (lower trainer.learning_rate), "
        "a component where its function returns such a value, sampling curves where vLLM gives a token no probability"
    )
    return Verdict("warning", history.step, text, why, advice)


def gradient_spike(history: History, facts: Facts, *, rule: GradientSpikeRule) -> Verdict | None:
    """Tell that the gradient norm of this step is many times the median before it, and above what is clipped."""
    curve = history.curve(_GRAD_NORM)
    if curve.latest_step != history.step:
        return None
    # A batch in which all rewards of each group are equal has no gradient but that of KL: it is no measure of size.
    dead = {point.step for point in history.curve(_ZERO_STD).kept if point.value >= 1}
    earlier = [point for point in curve.kept[:-1] if point.value > 0 and point.step not in dead][-rule.window :]
    if len(earlier) < rule.window:
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
