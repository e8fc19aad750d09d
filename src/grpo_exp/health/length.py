"""Rules on the length of completions."""

from __future__ import annotations

from grpo_exp.health.curves import lowest, mean, median, reaches
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict, at_least
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import LengthAndRewardFallRule, LengthExplosionRule, TruncationRule


def length_explosion(history: History, facts: Facts, *, rule: LengthExplosionRule) -> Verdict | None:
    """Tell that completions have grown by a factor, or to the limit, while the primary component has not risen."""
    curve = history.curve(facts.length_curve)
    gains = primary_gains(history, facts, rule.window)
    near_limit = rule.limit_share * facts.max_completion_length
    for place, reference in enumerate(curve.references(rule.window)):
        before, now = median(reference), median(curve.last(rule.window))
        bound = rule.factor * before
        if now < bound:
            bound = max(near_limit, rule.limit_growth * before)
        gain = gains[place] if place < len(gains) else None
        # Against a later window than the first one only what is known to stand still counts.
        if now >= bound and (gain < rule.min_gain if gain is not None else place == 0):
            break
    else:
        return None
    flat = "" if gain is None else f", while mean {facts.primary} changed by {gain:+.3f}"
    where = f" (limit {facts.max_completion_length})" if now >= near_limit else ""
    text = f"completions grew from {before:.0f} to {now:.0f} tokens{where}{flat}"
    why = (
        "length that does not buy correctness is padding or repetition; it makes each step slower, and what reaches "
        "the limit is cut off"
    )
    aggregation = "algorithm=dr_grpo or dapo (the loss of grpo is kind to long wrong answers)"
    advice = f"read completions; try algorithm.overlong.enabled=true, {aggregation}, a component of kind repetition"
    return Verdict("warning", curve.since(lambda value: value >= bound), text, why, advice)


def truncation(history: History, facts: Facts, *, rule: TruncationRule) -> Verdict | None:
    """Tell that many completions hit the limit at every point of the window."""
    curve = history.curve(facts.unchosen("completion_length/truncated_fraction"))
    points = curve.last(rule.window)
    if not points or not reaches(lowest(points), rule.share):
        return None
    limit = facts.max_completion_length
    text = f"{at_least(lowest(points))} of the completions hit the limit of {limit} tokens over {rule.window} batches"
    why = "their answers are cut off and judged by what is missing, so good reasoning is punished by its length"
    advice = (
        f"raise trainer.max_completion_length (now {limit}); else algorithm.mask_truncated_completions=true or "
        "algorithm.overlong.enabled=true"
    )
    return Verdict("warning", curve.since(lambda value: reaches(value, rule.share)), text, why, advice)


def length_and_reward_fall(history: History, facts: Facts, *, rule: LengthAndRewardFallRule) -> Verdict | None:
    """Tell that length and reward are both well below their best means."""
    curve, reward = history.curve(facts.length_curve), history.curve(facts.reward_curve)
    lengths, rewards = curve.last(rule.window), reward.last(rule.window)
    if not lengths or not rewards:
        return None
    longest, highest = curve.best(rule.window), reward.best(rule.window)
    assert longest is not None  # both have a full window
    assert highest is not None
    length, value = mean(lengths), mean(rewards)
    bound = rule.factor * longest.value
    if length > bound or highest.value - value < rule.drop * abs(highest.value) or value >= highest.value:
        return None
    text = (
        f"completions shortened from {longest.value:.1f} to {length:.1f} tokens while the reward fell from "
        f"{highest.value:.3f} to {value:.3f} (means of {rule.window} batches)"
    )
    why = "the policy gives up reasoning, or ends early, and loses by it: it seldom comes back by itself"
    advice = (
        "lower trainer.learning_rate or raise algorithm.beta; look whether a component or algorithm.overlong pays for "
        "short completions"
    )
    return Verdict("warning", curve.since(lambda value: value <= bound), text, why, advice)


def primary_gains(history: History, facts: Facts, window: int) -> list[float]:
    """Return how much the primary component's mean has risen since each of its reference windows; maybe none."""
    curve = history.curve(facts.primary_curve)
    return [mean(curve.last(window)) - mean(reference) for reference in curve.references(window)]
