"""Settings of the reward for programs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import Float, Int, NoneText, OptionalText
from grpo_exp.settings.reward_schedule import ComponentSettings

_Seconds = Annotated[Float, Field(gt=0, le=3600)]


class CodeComponent(ComponentSettings):
    """Unit tests of the program in the last fenced block; columns `tests` and `mode`."""

    kind: Literal["code"]
    scoring: Literal["all", "fraction"] = "all"
    """1.0 if all tests pass, else 0.0; or the fraction of tests that pass, which pays for special-casing."""
    sandbox: Literal["bubblewrap", "unsafe_subprocess"] = "bubblewrap"
    """Where programs run: isolated by bubblewrap (Debian package `bubblewrap`), or as plain processes of this user, for
    programs that you trust."""
    timeout_seconds: _Seconds = 4.0
    """Wall time of one test, the start of Python included; also the CPU time of each process, rounded up."""
    total_seconds: _Seconds = 20.0
    """Wall time of all tests of one completion; a test that finds no time left has failed."""
    memory_megabytes: Annotated[Int, Field(ge=64, le=1_048_576)] = 1024
    """Address space of each process, and resident memory of all processes of a program together, in MiB."""
    num_processes: Annotated[Int, Field(ge=1, le=4096)] = 32
    """Processes and threads of a program at a time."""
    file_megabytes: Annotated[Int, Field(ge=1, le=65_536)] = 64
    """Size of one file, and of the throw-away folder, which lies in memory, in MiB."""
    output_megabytes: Annotated[Int, Field(ge=1, le=1024)] = 8
    """Standard output of one test, or the returned value of one call, in MiB."""
    num_workers: Annotated[Annotated[Int, Field(ge=1, le=256)] | None, NoneText] = None
    """Programs at a time; null is the cores of this machine, shared among its ranks."""
    python: OptionalText = None
    """Interpreter that runs the programs, with its packages; null is the one that runs this, without its virtual
    environment."""
