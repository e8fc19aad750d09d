"""Which models an evaluation is about: a run's checkpoints, one checkpoint, or a model of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grpo_exp.checkpoints.store import CheckpointStore
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.model import LocalModel, ModelSettings, PretrainedModel, location_of


@dataclass(frozen=True, slots=True)
class Source:
    """One model to evaluate."""

    step: int
    """Optimizer steps that were done; 0 for a model that belongs to no run, and for the policy before training."""
    model: ModelSettings

    @property
    def folder(self) -> str:
        """Where its weights are, or what it is made from."""
        return location_of(self.model) or "built in"


def checkpoint_in(path: Path) -> tuple[RunDirectory, int] | None:
    """Return run and step where a path is a checkpoint of a run, or None."""
    is_one = path.parent.name == "checkpoints" and path.name.startswith("checkpoint-")
    number = path.name.removeprefix("checkpoint-")
    return (RunDirectory(path.parent.parent), int(number)) if is_one and number.isdecimal() else None


def sources_of(
    directory: RunDirectory, settings: EvaluationSettings, asked: tuple[int, ...] | Literal["final", "all"]
) -> list[Source]:
    """Return the models of a run, by step.

    Args:
        directory: The run.
        settings: The model is that before training, which also knows the type of the weights.
        asked: `final`, `all`, or steps.

    Raises:
        ConfigError: It has no such checkpoint, or none at all; the message lists what there is.
    """
    there = _all(directory, settings.model)
    if asked == "all":
        return [there[step] for step in sorted(there)]
    if asked == "final":
        if max(there) == 0:
            raise ConfigError(
                f"{directory.path}: has neither a trained model nor a complete checkpoint; wait for one, or evaluate "
                "the policy before training with 'checkpoints=[0]'"
            )
        return [there[max(there)]]
    missing = [step for step in asked if step not in there]
    if missing:
        known = ", ".join(map(str, sorted(there)))
        raise ConfigError(
            f"checkpoints={list(asked)}: {directory.path} has nothing of step {missing[0]}; it has {known} (0 is the "
            "policy before training)"
        )
    return [there[step] for step in sorted(set(asked))]


def _all(directory: RunDirectory, before: ModelSettings) -> dict[int, Source]:
    found = {0: Source(0, before)}
    for checkpoint in CheckpointStore(directory.checkpoints).complete():
        found[checkpoint.step] = Source(checkpoint.step, _saved(checkpoint.path, before))
    result = directory.read_result()
    has_model = any((directory.model / name).is_file() for name in ("config.json", "adapter_config.json"))
    if has_model and result is not None:
        found[result["steps"]] = Source(result["steps"], _saved(directory.model, before))
    return found


def _saved(folder: Path, before: ModelSettings) -> LocalModel:
    """Return the settings of weights that training saved, with what the model before it says about loading."""
    kept: dict[str, Any] = {"max_micro_batch": before.max_micro_batch}
    if isinstance(before, PretrainedModel):
        kept |= {
            name: getattr(before, name)
            for name in ("dtype", "attn_implementation", "trust_remote_code", "reasoning_prefill")
        }
    else:
        kept["dtype"] = "float32"
    return LocalModel(kind="local", path=str(folder), **kept)
