"""Two gloo processes forked off a test: importing everything once more in each would take longer than the rest."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from accelerate.state import AcceleratorState


def fork_two(work: Callable[..., None], *arguments: Any, seconds: float) -> None:
    """Do some work on two processes and wait; one that fails, or waits for the other one for ever, is an error."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_be_one, args=(rank, port, work, arguments)) for rank in (0, 1)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0, 0], f"the two processes ended with {codes}; None waited for the other one"


def _be_one(rank: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    AcceleratorState._reset_state(reset_partial_state=True)  # the parent was the only process
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    work(*arguments)
