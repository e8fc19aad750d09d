"""Settings of the worker processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Int, NoneText, Settings

Port = Annotated[Int, Field(ge=1024, le=65535)]


Seconds = Annotated[Float, Field(gt=0, le=604_800)]


class WatchdogSettings(Settings):
    """When a run counts as hanging: it then writes the stacks of all its processes, and fails."""

    enabled: bool = True
    """Watch at all."""
    factor: Annotated[Float, Field(ge=2, le=10_000)] = 20.0
    """A step may take this many times the median of the latest 50. Lengths of completions vary, and with them a step by
    a factor of several; a judgement, not a measurement."""
    min_seconds: Seconds = 900.0
    """But never less than this: above NCCL's own limit of 600 s (torch.distributed.init_process_group), whose message
    says more, where it comes."""
    start_seconds: Seconds = 3600.0
    """Longest time without a sign of life before the third step, and outside of training: loading a model, starting an
    engine, compiling, one batch of an evaluation, saving."""


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
    watchdog: WatchdogSettings = WatchdogSettings()
    """Ends a run that hangs."""

    @model_validator(mode="after")
    def _check(self) -> LaunchSettings:
        if self.kind == "inline" and self.num_processes != 1:
            raise ValueError(
                f"num_processes: {self.num_processes} with launch=inline, which is one process in place; "
                "use launch=ddp, or 1"
            )
        return self
