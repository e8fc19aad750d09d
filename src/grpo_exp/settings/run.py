"""All settings of a run, and the faults that only several groups together can have."""

from __future__ import annotations

import difflib
import re
from typing import Annotated

from pydantic import Field, field_validator

from grpo_exp.settings.algorithm import AlgorithmSettings
from grpo_exp.settings.base import Int, PathText, Settings, Text
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.health import HealthSettings
from grpo_exp.settings.launch import LaunchSettings
from grpo_exp.settings.model import ModelSettings
from grpo_exp.settings.reward import RewardSettings
from grpo_exp.settings.sft import SftSettings
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.settings.trainer import TrainerSettings
from grpo_exp.settings.vllm import VllmSettings

RESUME_WORDS = ("auto", "never")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunSettings(Settings):
    """Everything that defines a run."""

    name: Text
    """First folder below `output_dir`; runs with one name belong together."""
    seed: Annotated[Int, Field(ge=0, le=2**32 - 1)] = 0  # numpy takes 32 bits
    """Seed of the order of the prompts, of sampling and of the held-out problems."""
    output_dir: PathText = "outputs"
    """Where run folders go."""
    resume: PathText = "auto"
    """`auto` finds the run of the same settings and goes on from its newest complete checkpoint; `never` starts a new
    one beside it (-2, -3); the folder of a run or of a checkpoint, written with a slash, is gone on from."""
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
    sft: SftSettings | None = None
    """Supervised fine-tuning on worked examples instead of GRPO: what `grpo-exp sft` sets."""

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a plain folder name; use letters, digits, dots, dashes and underscores")
        return value

    @field_validator("resume")
    @classmethod
    def _is_a_word_or_a_folder(cls, value: str) -> str:
        if value in RESUME_WORDS or "/" in value:
            return value
        near = difflib.get_close_matches(value, RESUME_WORDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"for a folder here write resume=./{value}"
        raise ValueError(f"must be one of 'auto', 'never' and the folder of a run or checkpoint; {hint}")
