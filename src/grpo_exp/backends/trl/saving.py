"""How runs of GRPO and of fine-tuning save checkpoints, and go on behind one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import Trainer

from grpo_exp.backends.trl.callbacks import CheckpointCallback
from grpo_exp.backends.trl.run_parts import RunParts
from grpo_exp.backends.trl.whole_saving import WholeSavingTrainer
from grpo_exp.checkpoints.store import Checkpoint


def saving(parts: RunParts) -> dict[str, Any]:
    """Return what the trainer is told about checkpoints, nothing where none are saved."""
    plan, observer = parts.checkpoints, parts.observer
    if plan is None:
        return {}
    return {
        "plan": plan,
        "facts": lambda: {**plan.facts(), "evaluation": parts.evaluation},
        "on_saving": lambda: observer.on_phase("saving a checkpoint"),
        "on_saved": lambda step: observer.on_phase("training", step, parts.settings.trainer.max_steps),
    }


def add_checkpoints(parts: RunParts, trainer: Trainer, any_process: Callable[[bool], bool]) -> None:
    """Have them saved at their steps; to be called when the callback that stops has been added."""
    plan = parts.checkpoints
    if plan is not None:
        trainer.add_callback(
            CheckpointCallback(
                every_steps=plan.settings.every_steps,
                is_asked=plan.is_asked,
                is_broken=plan.is_broken,
                any_process=any_process,
            )
        )


def train(trainer: Trainer, resume: Checkpoint | None, *, max_steps: int) -> None:
    """Train from the first step, or behind a checkpoint."""
    if resume is None:
        trainer.train()
    else:
        assert isinstance(trainer, WholeSavingTrainer)  # a run with a checkpoint has a plan
        trainer.train_behind(resume, max_steps=max_steps)
