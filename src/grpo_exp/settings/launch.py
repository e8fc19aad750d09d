"""Settings of the worker processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Int, NoneText, OptionalText, Settings
from grpo_exp.settings.model_values import MixedPrecision

Port = Annotated[Int, Field(ge=1024, le=65535)]


Seconds = Annotated[Float, Field(gt=0, le=604_800)]
Strategy = Literal["ddp", "zero2", "zero3", "fsdp1", "fsdp2"]

#: What may be moved to the memory of the CPU, by strategy.
_OFFLOADABLE = {
    "ddp": ("none",), "zero2": ("none", "optimizer"), "zero3": ("none", "optimizer", "parameters"),
    "fsdp1": ("none", "parameters"), "fsdp2": ("none", "parameters"),
}  # fmt: skip


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
    """How the worker processes are started, and how they share the model."""

    kind: Literal["accelerate", "inline"]
    """`accelerate launch`, or one process in place."""
    num_processes: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Worker processes, one per device, over all nodes."""
    strategy: Strategy = "ddp"
    """Who holds what: `ddp` a whole copy each; `zero2` shares out gradients and optimizer (DeepSpeed), `zero3` the
    weights, too; so do `fsdp2` and the older `fsdp1` (PyTorch)."""
    offload: Literal["none", "optimizer", "parameters"] = "none"
    """What lies in the memory of the CPU: the optimizer, or that and the weights. Slow; for models that do not fit."""
    reshard_after_forward: bool = True
    """With fsdp: give the gathered weights of a layer free after its forward pass and gather them again for the
    backward one; false takes more memory and less time."""
    num_nodes: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Machines with equally many processes each. With more than one the command is started on each of them."""
    machine_rank: Annotated[Annotated[Int, Field(ge=0, le=1023)] | None, NoneText] = None
    """Which of the machines this is, from 0; null is SLURM's SLURM_NODEID."""
    main_process_ip: OptionalText = None
    """Address of machine 0; null is MASTER_ADDR."""
    mixed_precision: MixedPrecision = "no"
    """Autocast of the forward passes; the default comes from the model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` is cuda where a GPU is visible."""
    threads_per_process: Annotated[Annotated[Int, Field(ge=1, le=1024)] | None, NoneText] = None
    """CPU threads per process; null shares the cores equally."""
    main_process_port: Annotated[Port | None, NoneText] = None
    """Port on which the processes meet; null is a free one. With several nodes it must be given."""
    gpu: OptionalText = None
    """GPU that the memory plan is for, such as H100-80GB or 48GB; null is the one that is visible here."""
    memory_plan: Literal["refuse", "print", "off"] = "refuse"
    """`refuse` ends a run whose estimate is above the memory of its GPU, `print` only shows the estimate."""
    watchdog: WatchdogSettings = WatchdogSettings()
    """Ends a run that hangs."""

    @property
    def shards_weights(self) -> bool:
        """Whether each process holds a part of the weights only."""
        return self.strategy in {"zero3", "fsdp1", "fsdp2"}

    @model_validator(mode="after")
    def _check(self) -> LaunchSettings:
        if self.kind == "inline" and self.num_processes != 1:
            raise ValueError(
                f"num_processes: {self.num_processes} with launch=inline, which is one process in place; "
                "use launch=ddp, or 1"
            )
        if self.kind == "inline" and self.strategy != "ddp":
            raise ValueError(
                f"strategy: {self.strategy} with launch=inline, which starts no launcher; use launch={self.strategy}, "
                "or ddp"
            )
        return self

    @model_validator(mode="after")
    def _offloads_what_it_can(self) -> LaunchSettings:
        possible = _OFFLOADABLE[self.strategy]
        if self.offload not in possible:
            raise ValueError(
                f"offload: {self.offload} with strategy={self.strategy}, which can move {' or '.join(possible)}; use "
                f"one of these, or launch=zero3"
            )
        return self

    @model_validator(mode="after")
    def _shares_out_processes(self) -> LaunchSettings:
        if self.num_processes % self.num_nodes:
            near = self.num_processes // self.num_nodes * self.num_nodes or self.num_nodes
            raise ValueError(
                f"num_processes: {self.num_processes} do not divide by num_nodes ({self.num_nodes}), and each node "
                f"runs as many; use {near}"
            )
        if self.machine_rank is not None and self.machine_rank >= self.num_nodes:
            raise ValueError(
                f"machine_rank: {self.machine_rank} with num_nodes={self.num_nodes}; use 0 to {self.num_nodes - 1}"
            )
        return self
