"""Notes on `trainer.extra`: fields of TRL that do nothing here, and sampling that the loss does not know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_exp.settings.run import RunSettings

#: Start of a field's name -> why it does nothing here, or None where it does something.
_WITHOUT_EFFECT: dict[str, Callable[[RunSettings], str | None]] = {
    "eval_": lambda s: "held-out accuracy has its own loop; see trainer.eval_samples",
    "per_device_eval_": lambda s: "held-out accuracy has its own loop; see model.max_micro_batch",
    "num_generations_eval": lambda s: "held-out accuracy has its own loop; see trainer.eval_samples",
    "hub_": lambda s: "nothing is pushed to the hub; upload the folder model/ of a run",
    "entropy_coef_": lambda s: _unless(_adapts_entropy(s), "the entropy bonus is fixed; add use_adaptive_entropy=true"),
    "entropy_target": lambda s: _unless(
        _adapts_entropy(s), "the entropy bonus is fixed; add use_adaptive_entropy=true"
    ),
}
#: Sampling fields -> the value that leaves the distribution as it is.
_NEUTRAL: dict[str, tuple[Any, ...]] = {"min_p": (None, 0), "repetition_penalty": (1,)}


def extra_notes(settings: RunSettings) -> list[str]:
    """Return a line for each field of `trainer.extra` that does nothing, or biases the ratio."""
    found = []
    for key, value in settings.trainer.extra.items():
        if key in _NEUTRAL and value not in _NEUTRAL[key]:
            found.append(
                f"trainer.extra.{key}={value}: samples come from another distribution than the loss is computed on, so "
                "ratios are biased; leave it out"
            )
        reasons = (why(settings) for start, why in _WITHOUT_EFFECT.items() if key.startswith(start))
        reason = next((text for text in reasons if text is not None), None)
        if reason is not None:
            found.append(f"trainer.extra.{key}={value} has no effect: {reason}")
    return found


def _unless(acts: bool, reason: str) -> str | None:
    return None if acts else reason


def _adapts_entropy(settings: RunSettings) -> bool:
    return settings.trainer.extra.get("use_adaptive_entropy") is True
