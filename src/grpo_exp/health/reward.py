"""Rules on the reward and its components."""

from __future__ import annotations

from grpo_exp.health.curves import mean
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.health.length import primary_gains
from grpo_exp.settings.health_rules import CheckerRule, ConstantComponentRule, FormatHackingRule, RewardCollapseRule

#: Differences between values of a component below this are rounding: they are held in 32 bits.
_ROUNDING = 1e-6
#: Mean of the primary component from which it is no surprise that it rises no further; as `no_signal.easy_mean`.
_SOLVED = 0.8
#: Outcomes that are no verdict about the completion -> what they cost, and what to try.
_OUTCOMES = {
    "timeout": (
        "ran into the checker's time limit",
        "each scores 0 whatever it says, and keeps a checker busy for that long",
        "look at them before raising reward.engine.timeout_seconds: answers that hang a checker are a way to cheat",
    ),
    "crash": (
        "killed the checker",
        "each scores 0 whatever it says, and costs a new process",
        "look at them before raising reward.engine.memory_gib",
    ),
    "unjudgeable": (
        "have a target that cannot be judged",
        "their rows are left out, so that the batch is smaller than it should be",
        "correct the data, or choose the component that reads such targets",
    ),
}
OUTCOMES = tuple(_OUTCOMES)


def reward_collapse(history: History, facts: Facts, *, rule: RewardCollapseRule) -> Verdict | None:
    """Tell that the mean reward is far below its best mean."""
    curve = history.curve(facts.reward_curve)
    points = curve.last(rule.window)
    if not points:
        return None
    best, now = curve.best(rule.window), mean(points)
    assert best is not None  # there is a full window
    fall = max(rule.drop * abs(best.value), rule.min_drop)
    if best.value - now < fall or now >= best.value:
        return None
    what = f"mean {facts.primary}" if facts.is_scheduled else "the mean reward"
    text = f"{what} fell from {best.value:.3f} (up to step {best.step}) to {now:.3f} (means of {rule.window} batches)"
    why = "the policy has lost what it had learned; further steps start from there"
    advice = (
        "go back to what it was before: a lower trainer.learning_rate, a higher algorithm.beta, fewer "
        "algorithm.updates_per_batch"
    )
    return Verdict("warning", curve.since(lambda value: value <= best.value - fall), text, why, advice)


def format_hacking(history: History, facts: Facts, *, rule: FormatHackingRule, component: str) -> Verdict | None:
    """Tell that a component has risen while the primary one has not."""
    curve = history.curve(facts.component_curve(component))
    primary, best = history.curve(facts.primary_curve).last(rule.window), facts.components[component].best or 1.0
    pairs = zip(curve.references(rule.window), primary_gains(history, facts, rule.window), strict=False)
    for place, (reference, gain) in enumerate(pairs):
        before, now = mean(reference), mean(curve.last(rule.window))
        # Behind the first window a run that is solved, or a form that was nearly right, may end its rise.
        may_rise = place == 0 or (mean(primary) < _SOLVED and before < _SOLVED * best)
        is_flat = gain <= rule.max_primary_gain and may_rise
        if now - before >= rule.component_gain and is_flat:
            break
    else:
        return None
    text = f"{component} rose from {before:.3f} to {now:.3f} while {facts.primary} changed by {gain:+.3f}"
    why = f"the policy earns what {component} pays without getting better at what is judged"
    weight = facts.components[component].weight
    advice = (
        f"lower reward.components.{component}.weight (now {weight:g}) or let its schedule fade, raise "
        f"reward.components.{facts.primary}.weight, and read completions for how {component} is pleased"
    )
    return Verdict("warning", curve.since(lambda value: value >= before + rule.component_gain), text, why, advice)


def constant_component(
    history: History, facts: Facts, *, rule: ConstantComponentRule, component: str
) -> Verdict | None:
    """Tell that a component gives all completions the same value; at its best that is only noted."""
    spread, level = history.curve(f"train/rewards/{component}/std"), history.curve(f"train/rewards/{component}/mean")
    points, values = spread.last(rule.window), level.last(rule.window)
    if not points or not values or max(point.value for point in points) > _ROUNDING:
        return None
    lowest, value = min(point.value for point in values), values[-1].value
    if max(point.value for point in values) - lowest > _ROUNDING:
        return None  # one value within a batch, and another one in the next
    best = facts.components[component].best
    since = spread.since(lambda deviation: deviation <= _ROUNDING)
    text = f"{component} was {value:.3f} for every completion of {rule.window} batches"
    weight = facts.components[component].weight
    if best is not None and value >= best - _ROUNDING:
        why = "it has nothing left to teach, and does no harm: equal rewards fall out of the advantage"
        return Verdict("info", since, f"{text}, its best", why, "none is needed")
    why = "equal rewards fall out of the advantage: the component costs time and teaches nothing"
    advice = (
        f"look at completions with grpo-exp score: perhaps it asks for what this policy never does; change or drop "
        f"reward.components.{component} (weight {weight:g})"
    )
    return Verdict("warning", since, text, why, advice)


def checker(history: History, facts: Facts, *, rule: CheckerRule, component: str, outcome: str) -> Verdict | None:
    """Tell that the checker gave up on a share of the completions in the window, or could not judge them."""
    curve = history.curve(f"train/rewards/{component}/{outcome}")
    points = curve.last(min(rule.window, len(curve)))
    if not points:
        return None
    discarded = history.curve("train/dynamic_sampling/discarded_completions").last(len(points))
    scored = len(points) * facts.groups_per_batch * facts.num_generations + sum(point.value for point in discarded)
    count = sum(point.value for point in points)
    limits = {
        "timeout": rule.timeout_share, "crash": rule.crash_share, "unjudgeable": rule.unjudgeable_share,
    }  # fmt: skip
    if count == 0 or count / scored < limits[outcome]:
        return None
    what, why, advice = _OUTCOMES[outcome]
    text = f"{component}: {count:g} of {scored:g} completions ({count / scored:.1%}) {what}"
    return Verdict("warning", curve.since(lambda value: value > 0), text, why, advice)
