"""Check a run without importing torch: all faults of groups, files and folders at once, then the notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from grpo_exp import devices
from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptData, mark_prefilled
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import memory
from grpo_exp.preflight.data_faults import data_faults
from grpo_exp.preflight.folders import folder_faults
from grpo_exp.preflight.group_faults import group_faults
from grpo_exp.preflight.notes import notes
from grpo_exp.preflight.reward_faults import column_faults, reward_faults
from grpo_exp.preflight.sampling import sampling_faults
from grpo_exp.settings.batching import BatchPlan, solve_batch
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.trl_fields import extra_faults

T = TypeVar("T")
LoadData = Callable[[RunSettings, BatchPlan], PromptData]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a checked run needs besides its settings."""

    plan: BatchPlan
    data: PromptData
    notes: tuple[str, ...]
    memory: tuple[str, ...] = ()
    """Lines of the memory plan; none on a CPU, and where the shape of the model is not known."""


def prepare(settings: RunSettings, *, load_data: LoadData | None = None, runs_here: bool = True) -> Prepared:
    """Check what several groups, files and folders together can get wrong.

    Args:
        settings: Of the run.
        load_data: Reads the prompts and looks at them; for callers that check many runs and keep what they read.
        runs_here: The run will be on this machine, so that its devices must do.

    Raises:
        ConfigError: All faults at once.
    """
    faults = [
        *extra_faults(settings.trainer.extra),
        *group_faults(settings, runs_here=runs_here),
        *reward_faults(settings.reward),
        *sampling_faults(settings),
        *folder_faults(settings),
    ]
    plan = _collect(faults, lambda: solve_batch(settings))
    data = None if plan is None else _collect(faults, lambda: (load_data or load_run_data)(settings, plan))
    lines = () if plan is None or data is None else _plan_memory(faults, settings, plan, data, runs_here=runs_here)
    if faults:
        raise ConfigError(faults)
    assert plan is not None
    assert data is not None
    return Prepared(plan, data, tuple(notes(settings, data)), lines)


def _plan_memory(
    faults: list[str], settings: RunSettings, plan: BatchPlan, data: PromptData, *, runs_here: bool
) -> tuple[str, ...]:
    """Estimate what a GPU must hold: of the one that is named, or on a machine with GPUs of its own."""
    launch = settings.launch
    is_here = runs_here and not devices.uses_cpu(launch.device)
    if launch.memory_plan == "off" or (launch.gpu is None and not is_here):
        return ()
    gpu = _collect(faults, lambda: memory.find_gpu(launch))
    tokens = memory.longest_prompt(settings, data)
    found = memory.plan_memory(settings, plan, prompt_tokens=tokens, gpu=gpu)
    if found is None:
        return ("no estimate: the shape of the model is not known here; give model.architecture, or a folder",)
    if launch.memory_plan == "refuse":
        faults += memory.memory_faults(found, settings, plan)
    return tuple(memory.memory_lines(found, settings))


def load_run_data(settings: RunSettings, plan: BatchPlan) -> PromptData:
    """Read the prompts of a run, and look at them in view of its model, lengths and reward.

    Raises:
        ConfigError: The data cannot be used.
    """
    data = load_prompts(settings.dataset, seed=settings.seed, plan=plan, reward=settings.reward, model=settings.model)
    faults = [*data_faults(settings, data), *column_faults(settings.reward, data)]
    if faults:
        raise ConfigError(faults)
    return mark_prefilled(data) if settings.model.opens_reasoning else data


def _collect(faults: list[str], build: Callable[[], T]) -> T | None:
    try:
        return build()
    except ConfigError as error:
        faults += error.faults
        return None
