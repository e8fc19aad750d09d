"""Which rules there are: name -> function and settings, for each of what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from grpo_exp.health import length, numerics, policy, reward, signal, speed, vllm
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import HealthRules, Rule, WindowRule

#: Settings that a rule compares best means over: these curves must remember them.
_WITH_BEST = ("length_and_reward_fall", "reward_collapse")


@dataclass(frozen=True, slots=True)
class Watch:
    """A rule that is looked at.

    Attributes:
        rule: Name, as under `health.rules`.
        subject: What of several it is about; empty where there is only one.
        settings: Its settings.
        judge: Looks at a history; pure.
    """

    rule: str
    subject: str
    settings: Rule
    judge: Callable[[History, Facts], Verdict | None]


def build_watches(rules: HealthRules, facts: Facts) -> list[Watch]:
    """Return all rules that are not ignored, once for each subject."""
    found = [
        *_single_watches(rules),
        *(
            Watch("kl_drift", name, rules.kl_drift, partial(policy.kl_drift, rule=rules.kl_drift, name=name))
            for name in policy.KL_CURVES
        ),
        Watch("not_finite", "other curves", _softened(rules.not_finite), partial(numerics.gap, rule=rules.not_finite)),
        *_component_watches(rules, facts),
    ]
    return [watch for watch in found if watch.settings.action != "ignore"]


def _softened(rule: Rule) -> Rule:
    """Return settings that tell and do no more: for what is worth a look and no reason to end a run."""
    return rule.model_copy(update={"action": "alert"}) if rule.action in {"checkpoint", "stop"} else rule


def _single_watches(rules: HealthRules) -> Iterator[Watch]:
    """Yield the rules that look at a run as a whole; the most serious first."""
    judges: Mapping[str, Callable[..., Verdict | None]] = {
        "not_finite": numerics.not_finite,
        "reward_collapse": reward.reward_collapse,
        "no_signal": signal.no_signal,
        "dynamic_sampling": signal.dynamic_sampling,
        "entropy_collapse": policy.entropy_collapse,
        "length_explosion": length.length_explosion,
        "length_and_reward_fall": length.length_and_reward_fall,
        "truncation": length.truncation,
        "clip_explosion": policy.clip_explosion,
        "gradient_spike": numerics.gradient_spike,
        "sampling_mismatch": vllm.sampling_mismatch,
        "throughput": speed.throughput,
        "generation_share": speed.generation_share,
    }
    by_name: dict[str, Rule] = dict(rules)
    for name, judge in judges.items():
        yield Watch(name, "", by_name[name], partial(judge, rule=by_name[name]))


def _component_watches(rules: HealthRules, facts: Facts) -> Iterator[Watch]:
    for name, component in facts.components.items():
        if component.weight != 0:
            judge = partial(reward.constant_component, rule=rules.constant_component, component=name)
            yield Watch("constant_component", name, rules.constant_component, judge)
        if is_easy_to_please(name, facts):
            judge = partial(reward.format_hacking, rule=rules.format_hacking, component=name)
            yield Watch("format_hacking", name, rules.format_hacking, judge)
        for outcome in reward.OUTCOMES:
            judge = partial(reward.checker, rule=rules.checker, component=name, outcome=outcome)
            yield Watch("checker", f"{name}/{outcome}", rules.checker, judge)


def is_easy_to_please(name: str, facts: Facts) -> bool:
    """Say whether a rising component may be cheated: it is paid, it is not the judge, and not a mere punishment."""
    component = facts.components[name]
    return name != facts.primary and component.weight > 0 and component.best != 0


def build_history(rules: HealthRules, facts: Facts) -> History:
    """Return an empty history that keeps what these rules look at."""
    by_name: dict[str, Rule] = dict(rules)
    windows = [rule.window for rule in by_name.values() if isinstance(rule, WindowRule)]
    best = {rule.window for name, rule in by_name.items() if name in _WITH_BEST and isinstance(rule, WindowRule)}
    return History(
        keep=2 * max(windows),
        best_of={facts.length_curve: best, facts.reward_curve: best},
        completions_per_batch=facts.groups_per_batch * facts.num_generations,
    )
