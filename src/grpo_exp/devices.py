"""Which GPUs this process may use, told by the driver's files and the environment: asking torch costs seconds."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")
_NODES = Path("/dev")
#: AMD's driver; torch calls its GPUs cuda, too.
_AMD = "kfd"


def uses_cpu(device: str) -> bool:
    """Say whether workers with `launch.device=DEVICE` will run on the CPU.

    Args:
        device: "cpu", "cuda", or "auto", which is cuda where a GPU is visible.
    """
    return device == "cpu" or (device == "auto" and not gpu_is_visible())


def will_use_cpu(device: str, *, runs_here: bool) -> bool:
    """Say whether a run will be on a CPU, as far as it is known: `auto` on another machine may well be a GPU there."""
    return uses_cpu(device) if runs_here else device == "cpu"


def gpu_is_visible() -> bool:
    """Say whether a worker started from here would find a GPU."""
    return count_visible_gpus() != 0


def count_visible_gpus() -> int | None:
    """Return how many GPUs a worker started from here would find, or None for some of unknown number."""
    installed = _count_installed()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if installed == 0 or given is None:
        return installed
    return _count_listed(given, installed)


def list_visible_gpus() -> list[str] | None:
    """Return the GPUs that a worker started from here would find, as CUDA_VISIBLE_DEVICES names them.

    None where nobody knows: those of a driver that lists none, unless the variable names them.
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = count_visible_gpus()
    if given is not None:
        return [entry.strip() for entry in given.split(",")][:count]
    return None if count is None else [str(number) for number in range(count)]


def split_gpus(visible: list[str], num_last: int) -> tuple[str, str]:
    """Share GPUs out to two programs on this machine: the last ones to the second, the others to the first.

    Args:
        visible: As CUDA_VISIBLE_DEVICES names them.
        num_last: GPUs of the second.

    Returns:
        CUDA_VISIBLE_DEVICES of the first and of the second.

    Raises:
        ValueError: None is left for the first.
    """
    if not 0 < num_last < len(visible):
        raise ValueError(f"{num_last} of {len(visible)} GPUs cannot be given away so that some are left for both")
    return ",".join(visible[:-num_last]), ",".join(visible[-num_last:])


def _count_installed() -> int | None:
    """Count what the driver lists; None where there is a driver that lists nothing (WSL, AMD)."""
    if _DRIVER.is_dir():
        # A container sees the host's list but only its own device files.
        nodes = len([entry for entry in _NODES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", entry.name)])
        listed = len(list(_DRIVER.iterdir()))
        return min(nodes, listed) if nodes else listed
    if (_NODES / _AMD).exists() or shutil.which("nvidia-smi") is not None:
        return None
    return 0


def _count_listed(given: str, installed: int | None) -> int:
    """Count as CUDA does: entries up to the first one that names no GPU. The texts of SLURM for none name none."""
    count = 0
    for entry in given.split(","):
        name = entry.strip()
        is_number = re.fullmatch(r"\d+", name) is not None
        if not is_number and not name.startswith(("GPU-", "MIG-")):
            break
        if is_number and installed is not None and int(name) >= installed:
            break
        count += 1
    return count
