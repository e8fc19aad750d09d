"""Where the fast step would change the result, as far as the settings tell it; pure, so that a check can say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_exp.settings.run import RunSettings

#: Field of `trainer.extra` -> whether a value of it rules the fast step out, and why (TRL 1.16, `_compute_loss`).
_EXTRA: dict[str, tuple[Callable[[Any], bool], str]] = {
    "top_entropy_quantile": (
        lambda value: value < 1,
        "takes its quantile over the tokens of each micro-batch, so another split masks other tokens",
    ),
    "entropy_coef": (
        lambda value: value != 0,
        "adds the mean entropy of each micro-batch, so rows without advantage have a gradient and the split counts",
    ),
    "use_adaptive_entropy": (
        lambda value: value is True,
        "adds the mean entropy of each micro-batch, so rows without advantage have a gradient and the split counts",
    ),
    "neftune_noise_alpha": (
        lambda value: value is not None,
        "draws its noise by the padded length, which the fast step cuts",
    ),
    "pad_to_multiple_of": (lambda value: value is not None, "asks for padding that the fast step would cut off"),
}


def fast_step_fault(settings: RunSettings) -> str | None:
    """Return why the fast step would change the result of these settings, or None where it is exact.

    What only the loaded model tells (experts, dropout) is looked at by the trainer.
    """
    if settings.algorithm.loss_type == "bnpo":
        return (
            "algorithm.loss_type=bnpo divides by the tokens of each micro-batch, so its gradient depends on how rows "
            "are split"
        )
    for name, value in settings.trainer.extra.items():
        rules_out, why = _EXTRA.get(name, (None, ""))
        if rules_out is not None and rules_out(value):
            return f"trainer.extra.{name}={value} {why}"
    return None
