"""Rules on how the policy moves: entropy, KL, clipping."""

from __future__ import annotations

from grpo_exp.health.curves import mean, median
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import ClipExplosionRule, EntropyCollapseRule, KlDriftRule

#: Curve -> what it is the distance from.
KL_CURVES = {"kl": "the reference model", "kl_from_start": "the initial policy"}


def entropy_collapse(history: History, facts: Facts, *, rule: EntropyCollapseRule) -> Verdict | None:
    """Tell that the entropy is a fraction of what it was while the task is neither solved nor being learned."""
    curve, primary = history.curve("train/entropy"), history.curve(facts.primary_curve)
    if len(curve) < 2 * rule.window:
        return None
    before, now = median(curve.start(rule.window)), median(curve.last(rule.window))
    bound = rule.factor * before
    if now > bound:
        return None
    recent, earlier = primary.last(rule.window), primary.last(rule.window, before=rule.window)
    if not recent or not earlier:
        return None
    level, gain = mean(recent), mean(recent) - mean(earlier)
    if level >= rule.solved or gain > rule.max_gain:
        return None
    text = (
        f"entropy fell from {before:.3g} to {now:.3g} nats per token while mean {facts.primary} stands at {level:.3f} "
        f"({gain:+.3f} over {rule.window} batches)"
    )
    why = "all completions of a prompt become the same: there is nothing left to compare and to reinforce"
    advice = (
        "lower trainer.learning_rate; raise algorithm.epsilon_high (DAPO: 0.28), algorithm.temperature or "
        "algorithm.beta; an entropy bonus is trainer.extra.entropy_coef"
    )
    return Verdict("warning", curve.since(lambda value: value <= bound), text, why, advice)


def kl_drift(history: History, facts: Facts, *, rule: KlDriftRule, name: str) -> Verdict | None:
    """Tell that a KL is above its level, or that it has jumped."""
    curve = history.curve(f"train/{name}")
    latest = curve.last(1)
    if not latest:
        return None
    value = latest[0].value
    why = (
        "far from its start the policy has left what pre-training taught it, and a jump comes before most collapses; "
        "the reward may still look good"
    )
    advice = "lower trainer.learning_rate or trainer.max_grad_norm, raise algorithm.beta; read completions"
    if value >= rule.level:
        text = f"{name} is {value:.3g} nats per token: the policy is far from {KL_CURVES[name]}"
        return Verdict("warning", curve.since(lambda kl: kl >= rule.level), text, why, advice)
    earlier = curve.last(rule.window, before=1)
    if not earlier or value < rule.jump_level:
        return None
    usual = median(earlier)
    if value < rule.jump_factor * usual:
        return None
    text = f"{name} jumped to {value:.3g} nats per token from a median of {usual:.3g} over {rule.window} points"
    return Verdict("warning", latest[0].step, text, why, advice)


def clip_explosion(history: History, facts: Facts, *, rule: ClipExplosionRule) -> Verdict | None:
    """Tell that a large share of the tokens is clipped; with one update per batch none can be."""
    if facts.is_on_policy:
        return None
    curve = history.curve("train/clip_ratio/region_mean")
    if not len(curve):
        curve = history.curve("train/cispo_clip_ratio")
    points = curve.last(rule.window)
    limit = rule.sequence_share if facts.is_sequence_level else rule.share
    if not points or mean(points) < limit:
        return None
    text = f"{mean(points):.0%} of the tokens are clipped (mean of {rule.window} steps)"
    why = "clipped tokens have no gradient: later updates on a batch push a policy that has already run away from it"
    advice = (
        "fewer algorithm.updates_per_batch or algorithm.num_iterations, a lower trainer.learning_rate; a wider "
        "algorithm.epsilon_high hides it"
    )
    return Verdict("warning", curve.since(lambda value: value >= limit), text, why, advice)
