"""Rules on whether there is anything to learn from: groups whose rewards differ."""

from __future__ import annotations

from grpo_exp.health.curves import mean, reaches
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import DynamicSamplingRule, NoSignalRule

_WHY = (
    "the advantage of a completion is its reward minus the mean of its group: where all are equal it is 0, and the "
    "group costs generation and teaches nothing"
)

#: Share of truncated completions from which they are the likely cause of wrong answers: more than half.
MOSTLY_CUT = 0.5


def no_signal(history: History, facts: Facts, *, rule: NoSignalRule) -> Verdict | None:
    """Tell that hardly any group has rewards that differ, and whether the prompts are too easy or too hard."""
    curve = history.curve("train/frac_reward_zero_std")
    points = curve.last(rule.window)
    if not points or not reaches(mean(points), rule.share):
        return None
    primary = history.curve(facts.primary_curve).last(rule.window)
    level = mean(primary) if primary else None
    seen = f"no {facts.primary} was measured" if level is None else f"mean {facts.primary} {level:.3f}"
    if facts.is_judged_as_one:
        what = f"all rewards of the batch were equal over {rule.window} batches"
    else:
        what = f"{mean(points):.0%} of the groups had equal rewards over {rule.window} batches"
    cause, advice = _cause(history, facts, rule, level)
    # A mean may be above all of its values by the last bit.
    since = next((point.step for point in points if reaches(point.value, rule.share)), history.step)
    return Verdict("warning", since, f"{what} ({seen}): {cause}", _WHY, advice)


def _cause(history: History, facts: Facts, rule: NoSignalRule, level: float | None) -> tuple[str, str]:
    """Return why groups do not differ, and what to try.

    Args:
        history: The run.
        facts: What it is.
        rule: Where easy begins and hard ends.
        level: Mean of the primary component over the window; None where it was not measured.
    """
    limit = "dataset.max_operand" if facts.dataset_kind == "arithmetic" else "dataset.path"
    replace = "" if facts.is_filtered else ", or replace such groups with algorithm.dynamic_sampling.enabled=true"
    more = f"raise algorithm.num_generations (now {facts.num_generations})"
    if level is not None and level >= rule.easy_mean:
        change = f"raise {limit}" if facts.dataset_kind == "arithmetic" else f"give harder rows in {limit}"
        return "the prompts are too easy for this policy by now", f"{change}, or end the run: it is done{replace}"
    if level is None or level > rule.hard_mean:
        return "some prompts are too easy and the others too hard", f"choose prompts in between, {more}{replace}"
    peak = history.curve(facts.primary_curve).peak
    if peak is not None and peak.value > max(rule.hard_mean, 2 * level):
        cause = f"the policy no longer solves what it solved at step {peak.step} ({peak.value:.3f})"
        return cause, "lower trainer.learning_rate, raise algorithm.beta, and start from what it was before"
    truncated = history.curve(facts.unchosen("completion_length/truncated_fraction")).last(rule.window)
    if truncated and mean(truncated) >= MOSTLY_CUT:
        cause = f"{mean(truncated):.0%} of the completions are cut off before their answer"
        return cause, f"raise trainer.max_completion_length (now {facts.max_completion_length})"
    change = f"lower {limit}" if facts.dataset_kind == "arithmetic" else f"give easier rows in {limit}"
    advice = f"{change}, {more}, start from a better model, or add a component that pays for parts"
    return "the prompts are too hard for this policy", advice


def dynamic_sampling(history: History, facts: Facts, *, rule: DynamicSamplingRule) -> Verdict | None:
    """Tell that batches do not get full, or that most groups are thrown away."""
    filled = history.curve("train/dynamic_sampling/filled_groups")
    acceptance = history.curve("train/dynamic_sampling/acceptance_rate")
    points, accepted = filled.last(rule.window), acceptance.last(rule.window)
    if not points or not accepted:
        return None
    primary = history.curve(facts.primary_curve).last(rule.window)
    level = mean(primary) if primary else None
    solved = level is not None and level >= rule.solved
    seen = "" if level is None else f" (mean {facts.primary} of the first round {level:.3f})"
    change = "harder prompts" if solved else "easier prompts, a larger algorithm.num_generations"
    share = mean(points) / facts.groups_per_batch
    if share >= rule.filled_share:
        text = f"{share:.0%} of the groups of {rule.window} batches do not vary, since the rounds ran out{seen}"
        advice = f"{change}, or raise algorithm.dynamic_sampling.max_rounds"
        since = filled.since(lambda value: value >= rule.filled_share * facts.groups_per_batch)
        return Verdict("warning", since, text, _WHY, advice)
    rate = mean(accepted)
    if rate >= rule.acceptance:
        return None
    text = f"only {rate:.0%} of the generated groups vary over {rule.window} batches{seen}; the others are thrown away"
    why = "each batch costs several rounds of generation"
    since = acceptance.since(lambda value: value < rule.acceptance)
    return Verdict("info" if solved else "warning", since, text, why, f"{change}, or end the run if that is enough")
