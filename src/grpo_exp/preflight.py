"""What can be said about a run before anything is loaded: faults, and notes that need no action."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import ConfigError
from grpo_exp.rewards.components import function_faults
from grpo_exp.settings.batching import BatchPlan, solve_batch
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.trl_fields import extra_faults

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a checked run needs besides its settings."""

    plan: BatchPlan
    data: PromptData
    notes: tuple[str, ...]


def prepare(settings: RunSettings) -> Prepared:
    """Check what several groups, files and folders together can get wrong.

    Raises:
        ConfigError: All faults at once.
    """
    faults = [
        *extra_faults(settings.trainer.extra),
        *_length_faults(settings),
        *_model_faults(settings),
        *_vllm_faults(settings),
        *function_faults(settings.reward),
        *_folder_faults(Path(settings.output_dir)),
    ]
    plan = _collect(faults, lambda: solve_batch(settings))
    data = None
    if plan is not None:
        data = _collect(faults, lambda: _load_data(settings, plan))
    if faults:
        raise ConfigError(faults)
    assert plan is not None
    assert data is not None
    return Prepared(plan, data, tuple(notes(settings, data)))


def _collect(faults: list[str], build: Callable[[], T]) -> T | None:
    try:
        return build()
    except ConfigError as error:
        faults += error.faults
        return None


def _load_data(settings: RunSettings, plan: BatchPlan) -> PromptData:
    return load_prompts(settings.dataset, seed=settings.seed, plan=plan, reward=settings.reward)


def _length_faults(settings: RunSettings) -> list[str]:
    if settings.model.kind != "tiny":
        return []
    limit, wanted = (
        settings.model.architecture.max_position_embeddings,
        settings.trainer.max_completion_length,
    )
    if wanted < limit:
        return []
    return [
        f"trainer.max_completion_length={wanted}: the model reads at most {limit} tokens, prompt included; "
        f"use a value well below, or raise model.architecture.max_position_embeddings"
    ]


def _model_faults(settings: RunSettings) -> list[str]:
    """Look whether the folder holds a model; what is no path on this machine may be a hub id."""
    if settings.model.kind != "local" or settings.model.path is None:
        return []
    text = settings.model.path
    folder = Path(text).expanduser()
    if (folder / "config.json").is_file() or (not folder.exists() and not text.startswith(("/", ".", "~"))):
        return []
    return [f"model.path={text}: holds no config.json; give a folder written by save_pretrained"]


def _vllm_faults(settings: RunSettings) -> list[str]:
    if settings.vllm.mode == "off":
        return []
    faults = []
    if importlib.util.find_spec("vllm") is None:
        faults.append(
            f"vllm={settings.vllm.mode}: the package vllm is not installed; pip install 'grpo-exp[vllm]', "
            "or use vllm=off"
        )
    if settings.launch.device == "cpu":
        faults.append(f"vllm={settings.vllm.mode}: needs a GPU and launch.device is cpu; use vllm=off")
    return faults


def _folder_faults(output_dir: Path) -> list[str]:
    existing = next(folder for folder in (output_dir, *output_dir.parents) if folder.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    why = "is not a folder" if not existing.is_dir() else "cannot be written"
    return [f"output_dir={output_dir}: {existing} {why}; choose another folder with output_dir=FOLDER"]


def notes(settings: RunSettings, data: PromptData) -> list[str]:
    """Return one line for each thing that a user should know and need not act on."""
    algorithm = settings.algorithm
    found = []
    if algorithm.dynamic_sampling.enabled:
        found.append(
            f"algorithm={algorithm.name} wants dynamic sampling, which does not exist here yet: groups without "
            "reward variance stay in the batch (curve: frac_reward_zero_std)"
        )
    if algorithm.beta == 0 and algorithm.use_bias_correction_kl:
        found.append("algorithm.use_bias_correction_kl has no effect: algorithm.beta is 0")
    if algorithm.loss_type == "dr_grpo" and algorithm.scale_rewards != "none":
        found.append(
            f"algorithm.scale_rewards={algorithm.scale_rewards} with loss_type=dr_grpo: Dr. GRPO is both, the "
            "constant length and scale_rewards=none (arXiv:2503.20783)"
        )
    if algorithm.top_p < 1:
        found.append(
            f"algorithm.top_p={algorithm.top_p}: samples come from a cut distribution, so ratios are biased; "
            "1.0 is usual"
        )
    if settings.model.kind == "tiny" and settings.trainer.learning_rate > 3e-4:
        found.append(
            f"trainer.learning_rate={settings.trainer.learning_rate:g} on model=tiny: 5e-4 is known to "
            "collapse; 1e-4 is the default"
        )
    found += [
        f"dataset: {count} rows {reason} are left out{_examples(data.dropped_targets.get(reason, ()))}"
        for reason, count in data.dropped.items()
    ]
    return found


def _examples(targets: Sequence[Any]) -> str:
    """Return the first targets, for a reader; all of them stand in the run's events."""
    if not targets:
        return ""
    shown = ", ".join(repr(target)[:60] for target in targets[:3])
    return f": {shown}{', ...' if len(targets) > 3 else ''}"
