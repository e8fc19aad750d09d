"""All settings of a run, and the faults that only several groups together can have."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from grpo_exp.settings.algorithm import AlgorithmSettings
from grpo_exp.settings.base import Int, PathText, Settings, Text
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.health import HealthSettings
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.settings.model import ModelSettings
from grpo_exp.settings.reward import RewardSettings
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.settings.trainer import TrainerSettings
from grpo_exp.settings.vllm import VllmSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunSettings(Settings):
    """Everything that defines a run."""

    name: Text
    """First folder below `output_dir`; runs with one name belong together."""
    seed: Annotated[Int, Field(ge=0, le=2**32 - 1)] = 0  # numpy takes 32 bits
    """Seed of the order of the prompts, of sampling and of the held-out problems."""
    output_dir: PathText = "outputs"
    """Where run folders go."""
    resume: Literal["auto", "never"] = "auto"
    """`auto` finds the run of the same settings; `never` starts a new one beside it (-2, -3)."""
    model: ModelSettings
    """The policy."""
    reward: RewardSettings
    """The teacher."""
    algorithm: AlgorithmSettings
    """From rewards to an update."""
    vllm: VllmSettings
    """Generation with vLLM."""
    dataset: DatasetSettings
    """The prompts."""
    trainer: TrainerSettings
    """Length, batch and optimizer."""
    tracker: TrackerSettings
    """Where the curves are copied to."""
    launch: LaunchSettings
    """How processes are started."""
    health: HealthSettings
    """What is watched."""

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a plain folder name; use letters, digits, dots, dashes and underscores")
        return value
