"""The sandboxes by name."""

from __future__ import annotations

from typing import Literal

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.sandbox.bubblewrap import BubblewrapSandbox
from grpo_exp.rewards.sandbox.unsafe_subprocess import UnsafeSubprocess

SandboxName = Literal["bubblewrap", "unsafe_subprocess"]


def build_sandbox(name: SandboxName, *, python: str | None = None) -> BubblewrapSandbox | UnsafeSubprocess:
    """Build a sandbox; it starts nothing before the first program.

    Args:
        name: Which one.
        python: The interpreter that runs the programs; None is the one that runs this.
    """
    match name:
        case "bubblewrap":
            return BubblewrapSandbox(python)
        case "unsafe_subprocess":
            return UnsafeSubprocess(python)


def sandbox_faults(name: SandboxName, *, python: str | None = None) -> list[str]:
    """Return what keeps a sandbox from working on this machine, each with its fix; runs one program to see.

    Args:
        name: Which one.
        python: The interpreter that runs the programs; None is the one that runs this.
    """
    try:
        return build_sandbox(name, python=python).faults()
    except ConfigError as error:
        return list(error.faults)
