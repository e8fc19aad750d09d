"""What all processes of a run decide together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def agree_over(accelerator: Any) -> Callable[[bool], bool]:
    """Return a function that tells whether a boolean is true on any process; all of them must call it."""

    def any_process(value: bool) -> bool:
        if accelerator.num_processes == 1:
            return value
        flag = torch.tensor([int(value)], device=accelerator.device)
        return bool(accelerator.reduce(flag, reduction="sum").item())

    return any_process
