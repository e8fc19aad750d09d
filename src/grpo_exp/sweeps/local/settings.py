"""Settings of `hydra/launcher=local`, and what they make of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from grpo_exp import devices
from grpo_exp.errors import ConfigError
from grpo_exp.settings.base import Int, NoneText, Settings
from grpo_exp.sweeps.rules import check_settings


class LocalLauncherSettings(Settings):
    """How many runs at once, and what each of them gets of this machine."""

    slots: Annotated[Int, Field(ge=1, le=256)] = 1
    """Runs at the same time. The cores are shared out among them."""
    gpus_per_run: Annotated[Annotated[Int, Field(ge=0, le=64)] | None, NoneText] = None
    """GPUs that a run sees, by CUDA_VISIBLE_DEVICES; null is one per process of the run where GPUs are visible."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one of the runs at the same time gets."""

    cores: tuple[int, ...]
    """Cores to stay on; empty leaves it to the system."""
    gpus: str | None
    """CUDA_VISIBLE_DEVICES; None leaves it as it is."""


def check_local(values: Mapping[str, Any]) -> LocalLauncherSettings:
    """Return typed settings.

    Raises:
        ConfigError: A setting is wrong.
    """
    return check_settings(LocalLauncherSettings, values, prefix=("hydra", "launcher"))


def build_slots(settings: LocalLauncherSettings, *, num_processes: int, uses_cpu: bool) -> list[Slot]:
    """Share cores and GPUs out.

    Args:
        settings: Of the launcher.
        num_processes: Most worker processes of any of the runs.
        uses_cpu: All the runs stay on the CPU.

    Raises:
        ConfigError: There are not as many GPUs as that.
    """
    per_run = settings.gpus_per_run
    if per_run is None:
        per_run = 0 if uses_cpu else num_processes
    gpus = _visible_gpus() if per_run else []
    if per_run * settings.slots > len(gpus):
        most = len(gpus) // per_run if per_run else settings.slots
        fix = f"use hydra.launcher.slots={most} or less" if most else "use hydra.launcher.gpus_per_run=0"
        raise ConfigError(
            f"hydra.launcher.slots={settings.slots}: with {per_run} GPU(s) for each run {per_run * settings.slots} are "
            f"wanted and {len(gpus)} are visible; {fix}"
        )
    shares = _share_cores(sorted(os.sched_getaffinity(0)), settings.slots)
    return [
        Slot(cores, ",".join(gpus[number * per_run : (number + 1) * per_run]) if per_run else None)
        for number, cores in enumerate(shares)
    ]


def _visible_gpus() -> list[str]:
    """Return the names of the visible GPUs, as CUDA_VISIBLE_DEVICES takes them."""
    count = devices.count_visible_gpus()
    if count is None:
        raise ConfigError(
            "hydra.launcher.gpus_per_run: how many GPUs are here cannot be told; name them in CUDA_VISIBLE_DEVICES, or "
            "use hydra.launcher.gpus_per_run=0 to leave all to every run"
        )
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if given is None else [name.strip() for name in given.split(",")]
    return names[:count]


def _share_cores(cores: Sequence[int], slots: int) -> list[tuple[int, ...]]:
    """Give each slot cores of its own as far as they go; with more slots than cores, one core each, shared."""
    if slots == 1:
        return [()]
    if slots > len(cores):
        return [(cores[number % len(cores)],) for number in range(slots)]
    bounds = [number * len(cores) // slots for number in range(slots + 1)]
    return [tuple(cores[bounds[number] : bounds[number + 1]]) for number in range(slots)]
