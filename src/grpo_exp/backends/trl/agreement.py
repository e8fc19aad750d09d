"""What all processes of a run decide together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object

from grpo_exp.errors import RunError


def agree_over(accelerator: Any) -> Callable[[bool], bool]:
    """Return a function that tells whether a boolean is true on any process; all of them must call it."""

    def any_process(value: bool) -> bool:
        if accelerator.num_processes == 1:
            return value
        flag = torch.tensor([int(value)], device=accelerator.device)
        return bool(accelerator.reduce(flag, reduction="sum").item())

    return any_process


def together(accelerator: Any, work: Callable[[], None], *, what: str) -> None:
    """Do something on this process, and go on when all processes have done it; a fault on one of them ends all.

    Args:
        accelerator: Of the trainer.
        work: What this process does; it waits for no other one where it can fail.
        what: Names it for the processes that did not fail.

    Raises:
        Exception: What `work` raised here.
        RunError: It failed on another process.
    """
    error: Exception | None = None
    try:
        work()
    except Exception as raised:
        error = raised
    if agree_over(accelerator)(error is not None):
        told = gather_object(["" if error is None else f"{type(error).__name__}: {error}"])
        raise error or RunError(f"{what} failed on another process: {next(text for text in told if text)}")


@contextmanager
def gathering_unequal_rows(accelerator: Any) -> Iterator[None]:
    """Let `accelerator.gather` take another number of rows on each process inside: the missing ones are NaN.

    TRL gathers one clip ratio for each row of a micro-batch, and takes minimum and maximum without NaN.
    """
    gather = accelerator.gather

    def padded(tensor: torch.Tensor) -> torch.Tensor:
        return gather(accelerator.pad_across_processes(tensor, dim=0, pad_index=math.nan))

    vars(accelerator)["gather"] = padded
    try:
        yield
    finally:
        del vars(accelerator)["gather"]
