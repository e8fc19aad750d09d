"""Train with and without the fast step on two processes, and write down how far their gradients differ.

`test_fast_step` forks itself for them: importing everything once more in each process would take longer than the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import TrainerCallback

from parity.forked import fork_two
from parity.recorded import (
    LOSSES,
    MAX_LENGTH,
    FastRecorded,
    G,
    Kind,
    StockRecorded,
    build,
    make_batch,
    relative_difference,
)

#: Dead groups of the two processes, in each of three steps.
DEAD: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((1, 3), (0, 1, 2, 3)), ((), ()), ((0, 1, 2, 3),) * 2]
NUM_ROWS = 16


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step, after all processes have met."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.found.append(torch.cat([weight.grad.flatten().clone() for weight in model.parameters()]))


def train(trainer_class: Any, loss: str, policy: Path, output: Path) -> tuple[list[torch.Tensor], list[list[int]]]:
    """Return the gradients of three steps, and the rows run in each on all processes."""
    words = [
        "algorithm=dapo", "launch=ddp", f"algorithm.num_generations={G}", "trainer.prompts_per_step=8",
        f"trainer.max_completion_length={MAX_LENGTH}", "trainer.per_device_train_batch_size=8", "trainer.max_steps=3",
        "trainer.learning_rate=1e-12", "trainer.max_grad_norm=1e6", *LOSSES[loss],
    ]  # fmt: skip
    trainer = build(trainer_class, policy, output, words)
    rank, rows = trainer.accelerator.process_index, [0] * len(DEAD)
    trainer.recorded = []
    for step, dead in enumerate(DEAD):
        both = [
            make_batch(trainer.model, Kind(NUM_ROWS, groups, off_policy=True), seed=10 * step + i)
            for i, groups in enumerate(dead)
        ]
        tokens = sum(batch["num_items_in_batch"] for batch in both)
        trainer.recorded.append({**both[rank], "num_items_in_batch": tokens})

    def note_rows(module: Any, args: Any, kwargs: Any) -> None:
        rows[trainer.state.global_step] += len(kwargs["input_ids"])

    trainer.model.register_forward_pre_hook(note_rows, with_kwargs=True)
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    return gradients.found, [gather_object([count]) for count in rows]


def compare(out: Path, policy: Path, losses: list[str]) -> None:
    """As one of two processes: compare the gradients, and write the result on the main one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for loss in losses:
        stock, _ = train(StockRecorded, loss, policy, out.parent)
        fast, rows = train(FastRecorded, loss, policy, out.parent)
        found[loss] = [
            {"size": float(theirs.norm()), "difference": relative_difference(ours, theirs), "rows": count}
            for ours, theirs, count in zip(fast, stock, rows, strict=True)
        ]
    if PartialState().is_main_process:
        out.write_text(json.dumps(found))


def run_on_two(out: Path, policy: Path, losses: list[str]) -> None:
    """Compare on two processes."""
    fork_two(compare, out, policy, losses, seconds=30 + 10 * len(losses))
