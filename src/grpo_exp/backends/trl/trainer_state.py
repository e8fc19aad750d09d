"""What TRL's trainer holds in memory and a stock checkpoint forgets: read at the end of a step, put back before one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast

from transformers import Trainer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

#: transformers 5.24 tells speeds from the step that it began with; 5.17, which vLLM wants, has nothing like it.
_REMEMBERS_FIRST_STEP = "_initial_global_step" in Trainer._inner_training_loop.__code__.co_names


def read_state(trainer: GRPOTrainer) -> dict[str, Any]:
    """Return this process's state as plain data and tensors.

    The buffered micro-batches and the texts they come from are in it only where the next step goes on with them:
    otherwise it generates new ones.
    """
    internal, is_reused = cast(Any, trainer), _goes_on_with_its_batch(trainer)
    return {
        "micro_steps": internal._step,
        "micro_batches": internal._buffered_inputs if is_reused else None,
        "logs": _plain(internal._logs) if is_reused else None,
        "metrics": {mode: {name: list(v) for name, v in found.items()} for mode, found in internal._metrics.items()},
        "loss": internal._tr_loss,
        "total_loss": internal._total_loss_scalar,
        "last_logged_step": internal._globalstep_last_logged,
        **({"first_step": internal._initial_global_step} if _REMEMBERS_FIRST_STEP else {}),
    }


def put_state(trainer: GRPOTrainer, state: Mapping[str, Any]) -> None:
    """Put back what `read_state` returned, when training has been set up and before its first micro-step."""
    internal = cast(Any, trainer)
    internal._step = state["micro_steps"]
    internal._buffered_inputs = state["micro_batches"]
    for mode, found in state["metrics"].items():
        internal._metrics[mode] = defaultdict(list, found)
    if state["logs"] is not None:
        _fill(internal._logs, state["logs"])
    internal._tr_loss.copy_(state["loss"])
    internal._total_loss_scalar = state["total_loss"]
    internal._globalstep_last_logged = state["last_logged_step"]
    if _REMEMBERS_FIRST_STEP and "first_step" in state:
        internal._initial_global_step = state["first_step"]


def _goes_on_with_its_batch(trainer: GRPOTrainer) -> bool:
    arguments = cast(GRPOConfig, trainer.args)
    assert arguments.steps_per_generation is not None  # GRPOConfig works it out
    return trainer._step % (arguments.steps_per_generation * trainer.num_iterations) != 0


def _plain(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return TRL's table of the latest completions as dicts and lists; images and columns of others are left out."""
    texts = {name: list(logs[name]) for name in ("prompt", "completion", "advantages")}
    return {**texts, "rewards": {name: list(values) for name, values in logs["rewards"].items()}}


def _fill(logs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    for name in ("prompt", "completion", "advantages"):
        logs[name].extend(state[name])
    for name, values in state["rewards"].items():
        logs["rewards"][name].extend(values)
