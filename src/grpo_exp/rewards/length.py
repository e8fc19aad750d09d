"""Rewards of the length in tokens."""

from __future__ import annotations

import math

from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_text import CosineLengthComponent, OverlongComponent


def score_overlong(num_tokens: int, settings: OverlongComponent) -> Score:
    """Return DAPO's soft punishment, -1 to 0 (arXiv:2503.14476, equation 13).

    Args:
        num_tokens: Length of the completion, 0 and up.
        settings: The limit L and the stretch C before it. With C = 0 there is no soft stretch.
    """
    limit, cache = settings.max_completion_tokens, settings.cache_tokens
    if num_tokens <= limit - cache:
        return Score(0.0, "within_limit")
    if num_tokens <= limit:
        return Score((limit - cache - num_tokens) / cache, "near_limit")
    return Score(-1.0, "over_limit")


def score_cosine(judged: Score, num_tokens: int, settings: CosineLengthComponent) -> Score:
    """Return a cosine of the length, by whether the answer is right (arXiv:2502.03373, equation 1).

    Args:
        judged: Score of the component that judges the answer; where it has no value, there is none here.
        num_tokens: Length of the completion, 0 and up.
        settings: The limit and the values at both ends.
    """
    if judged.value is None:
        return judged
    limit = settings.max_completion_tokens
    if num_tokens >= limit:
        return Score(settings.over_limit, "over_limit")
    right = judged.value >= 1.0
    short, long = (settings.right_short, settings.right_long) if right else (settings.wrong_short, settings.wrong_long)
    value = long + (short - long) * (1 + math.cos(math.pi * num_tokens / limit)) / 2
    return Score(value, "right" if right else "wrong")
