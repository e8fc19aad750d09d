"""Rules on how fast a run is and where the time goes."""

from __future__ import annotations

from grpo_exp.health.curves import median
from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import COMPLETIONS_PER_SECOND, TOKENS_PER_SECOND, History
from grpo_exp.settings.health_rules import GenerationShareRule, ThroughputRule


def throughput(history: History, facts: Facts, *, rule: ThroughputRule) -> Verdict | None:
    """Tell that tokens and completions per second have both fallen below a share of their first window."""
    tokens, completions = history.curve(TOKENS_PER_SECOND), history.curve(COMPLETIONS_PER_SECOND)
    if len(tokens) < 2 * rule.window:
        return None
    before = {curve: median(curve.start(rule.window)) for curve in (tokens, completions)}
    now = {curve: median(curve.last(rule.window)) for curve in (tokens, completions)}
    if any(now[curve] >= rule.factor * before[curve] for curve in before):
        return None
    text = (
        f"{now[completions]:.3g} completions and {now[tokens]:.3g} tokens per second, after {before[completions]:.3g} "
        f"and {before[tokens]:.3g} at the start"
    )
    why = "the rest of the run takes as much longer; a cause that grows, such as memory, may also end it"
    advice = (
        "compare time/generate, time/reward and time/train: another job on the machine, longest completions that grow "
        "(train/completion_length/max), or a scorer that runs into reward.engine.timeout_seconds"
    )
    since = tokens.since(lambda value: value < rule.factor * before[tokens])
    return Verdict("warning", since, text, why, advice)


def generation_share(history: History, facts: Facts, *, rule: GenerationShareRule) -> Verdict | None:
    """Tell how much of the time goes into generation; a warning only where the settings ask for one."""
    generate, step = history.curve("time/generate"), history.curve("time/step")
    points, whole = generate.last(rule.window), step.last(rule.window)
    if not points or not whole:
        return None
    # Steps that reuse a batch generate nothing: the share is that of generating steps.
    seconds = {point.step: point.value for point in whole}
    shares = [point.value / seconds[point.step] for point in points if seconds.get(point.step, 0) > 0]
    share = sum(shares) / len(shares) if shares else 0.0
    if share < rule.share:
        return None
    engine = "" if facts.uses_vllm else "vllm=colocate or vllm=server, "
    advice = (
        f"{engine}a larger model.max_micro_batch while memory allows, more updates for each batch "
        "(algorithm.updates_per_batch), a lower trainer.max_completion_length where few completions are that long"
    )
    text = f"{share:.0%} of the time of a generating step goes into generation (mean of {rule.window})"
    why = "steps get faster mostly by faster generation"
    return Verdict("info" if rule.action == "log" else "warning", points[0].step, text, why, advice)
