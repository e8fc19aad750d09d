"""Settings of the worker processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Int, NoneText, Settings

Port = Annotated[Int, Field(ge=1024, le=65535)]


class LaunchSettings(Settings):
    """How the worker processes are started."""

    kind: Literal["accelerate", "inline"]
    """`accelerate launch`, or one process in place."""
    num_processes: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Worker processes, one per device."""
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    """Autocast of the forward passes."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` is cuda where a GPU is visible."""
    threads_per_process: Annotated[Annotated[Int, Field(ge=1, le=1024)] | None, NoneText] = None
    """CPU threads per process; null shares the cores equally."""
    main_process_port: Annotated[Port | None, NoneText] = None
    """Port on which the processes meet; null is a free one."""

    @model_validator(mode="after")
    def _check(self) -> LaunchSettings:
        if self.kind == "inline" and self.num_processes != 1:
            raise ValueError(
                f"num_processes: {self.num_processes} with launch=inline, which is one process in place; "
                "use launch=ddp, or 1"
            )
        return self
