"""Memory of GPUs, by name or as the driver tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo_exp.errors import ConfigError
from grpo_exp.machine import nvidia_gpus
from grpo_exp.settings.launch import LaunchSettings

GIB = 1024**3
#: Name -> memory as the data sheets of the makers give it, in units of 1024^3 bytes. The driver shows 1 to 3 % less:
#: a GPU that is visible is asked, and its own number counts.
_GPUS = {
    "T4": 16, "V100-16GB": 16, "V100-32GB": 32, "RTX3090": 24, "RTX4090": 24, "RTX5090": 32, "A10": 24, "A10G": 24,
    "L4": 24, "A40": 48, "A6000": 48, "L40": 48, "L40S": 48, "A100-40GB": 40, "A100-80GB": 80, "H100-80GB": 80,
    "H100-94GB": 94, "GH200-96GB": 96, "H200": 141, "B200": 180, "MI250X": 64, "MI300X": 192,
}  # fmt: skip
#: What the driver keeps for itself of a GPU that is only known by name.
_USABLE = 0.97
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:G|GB|GiB)", re.IGNORECASE)
_DRIVER_MEMORY = re.compile(r"(\d+) MiB")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU and the bytes of memory that programs can have of it."""

    name: str
    memory: int


def find_gpu(settings: LaunchSettings) -> Gpu | None:
    """Return the GPU that a run is planned for: the one that is named, else the smallest that is visible, or None.

    Raises:
        ConfigError: The name is not known.
    """
    if settings.gpu is not None:
        return _named(settings.gpu)
    found = [gpu for row in nvidia_gpus() if (gpu := _told(row)) is not None]
    return min(found, key=lambda gpu: gpu.memory, default=None)


def _named(text: str) -> Gpu:
    size = _SIZE.fullmatch(text.strip())
    if size is not None:
        return Gpu(text, int(float(size.group(1)) * GIB))
    key = _plain(text)
    matches = {name: memory for name, memory in _GPUS.items() if _plain(name) == key}
    starting = matches or {name: memory for name, memory in _GPUS.items() if _plain(name).startswith(key)}
    if len(starting) != 1:
        which = ", ".join(starting or _GPUS)
        count = "more than one" if starting else "no"
        raise ConfigError(
            f"launch.gpu={text}: is {count} GPU known here; use one of {which}, or its memory, such as 48GB"
        )
    ((name, memory),) = starting.items()
    return Gpu(name, int(memory * _USABLE * GIB))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().removeprefix("nvidia"))


def _told(row: dict[str, str]) -> Gpu | None:
    """Read a row of nvidia-smi; None where the driver did not answer."""
    memory = _DRIVER_MEMORY.search(row.get("memory.total", ""))
    return None if memory is None else Gpu(row["name"], int(memory.group(1)) * 1024**2)
