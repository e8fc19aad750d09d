"""Rules on the engine that generates, where it is not the trainer itself."""

from __future__ import annotations

from grpo_exp.health.facts import Facts
from grpo_exp.health.finding import Verdict
from grpo_exp.health.history import History
from grpo_exp.settings.health_rules import SamplingMismatchRule


def sampling_mismatch(history: History, facts: Facts, *, rule: SamplingMismatchRule) -> Verdict | None:
    """Tell that the mean ratio of the trainer's over vLLM's probabilities stays outside its range."""
    curve = history.curve("train/sampling/importance_sampling_ratio/mean")
    points = curve.last(rule.window)
    if not points or any(rule.low <= point.value <= rule.high for point in points):
        return None
    text = (
        f"mean importance ratio of trainer over vLLM {points[-1].value:.3f}, outside {rule.low:g} to {rule.high:g} "
        f"over {rule.window} batches"
    )
    why = (
        "vLLM samples from another distribution than the one that is trained: weights that were not synchronised, "
        "another precision, or truncated sampling"
    )
    advice = (
        "model.dtype as in vLLM, algorithm.top_p=1 without top_k or min_p, "
        "vllm.importance_sampling_mode=token_truncate; restart a vLLM server together with the run"
    )
    since = curve.since(lambda value: not rule.low <= value <= rule.high)
    return Verdict("warning", since, text, why, advice)
