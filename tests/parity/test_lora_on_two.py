"""LoRA on two processes is LoRA on one: the same global batch gives the same gradients and the same adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from transformers import TrainerCallback

from parity.forked import fork_two
from parity.recorded import MAX_LENGTH, FastRecorded, G, Kind, StockRecorded, build, make_batch, relative_difference

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

STEPS, ROWS = 3, 16
TRAINERS = {"stock": StockRecorded, "fast": FastRecorded}
Weights = dict[str, torch.Tensor]


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step, after all processes have met."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.found.append(torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.requires_grad]))


def train(kind: str, loss: str, policy: Path, output: Path, *, launch: str) -> tuple[list[torch.Tensor], Weights]:
    """Train an adapter for three steps of 16 rows: 16 on one process, 8 on each of two; micro-batches of 4."""
    words = [
        f"algorithm={loss}", f"launch={launch}", f"algorithm.num_generations={G}",
        f"trainer.prompts_per_step={ROWS // G}",
        f"trainer.max_completion_length={MAX_LENGTH}", "trainer.per_device_train_batch_size=4",
        f"trainer.max_steps={STEPS}", "trainer.learning_rate=1e-3", "algorithm.updates_per_batch=1",
        "model.lora.enabled=true", "model.lora.r=4",
    ]  # fmt: skip
    trainer = build(TRAINERS[kind], policy, output, words)
    share, rank = ROWS // trainer.accelerator.num_processes, trainer.accelerator.process_index
    base = trainer.model.get_base_model()
    trainer.recorded = []
    for step in range(STEPS):
        batch = make_batch(base, Kind(ROWS, dead_groups=(2,), off_policy=True, reference=loss == "grpo"), seed=step)
        mine = slice(rank * share, (rank + 1) * share)
        trainer.recorded.append({name: value[mine] if value.ndim else value for name, value in batch.items()})
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    return gradients.found, {n: p.detach().clone() for n, p in trainer.model.named_parameters() if p.requires_grad}


def train_on_two(out: Path, policy: Path, kind: str, loss: str) -> None:
    found = train(kind, loss, policy, out.parent, launch="ddp")
    if PartialState().is_main_process:
        torch.save(found, out)


@pytest.mark.parametrize(
    ("kind", "loss"),
    [("fast", "dapo"), pytest.param("stock", "grpo", marks=pytest.mark.long),
     pytest.param("stock", "dr_grpo", marks=pytest.mark.long)],
)  # fmt: skip
def test_two_processes_train_the_adapter_of_one(kind: str, loss: str, policy_folder: Path, tmp_path: Path) -> None:
    fork_two(train_on_two, tmp_path / "two.pt", policy_folder, kind, loss, seconds=60)
    theirs, adapter_of_two = torch.load(tmp_path / "two.pt")
    ours, adapter = train(kind, loss, policy_folder, tmp_path, launch="inline")
    assert len(ours) == len(theirs) == STEPS
    for one, two in zip(ours, theirs, strict=True):
        assert one.norm() > 1e-3
        assert relative_difference(two, one) < 1e-5
    assert adapter.keys() == adapter_of_two.keys()
    assert max(float(weight.abs().max()) for name, weight in adapter.items() if "lora_B" in name) > 1e-3  # it moved
    for name, weight in adapter.items():
        torch.testing.assert_close(weight, adapter_of_two[name], atol=1e-5, rtol=1e-5)
