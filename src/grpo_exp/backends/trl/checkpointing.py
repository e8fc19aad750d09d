"""Checkpoints from which a run goes on bit for bit: everything a stock one forgets, and whole or not there at all.

A stock checkpoint of TRL 1.16 and transformers 5.24 lacks the micro-steps and the buffered batch, so that batches which
are used several times fall out of phase, a synced reference model, and whatever of our own has a state. It is written
in place, without a sign that it is complete: `whole_saving` mends that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.backends.trl.trainer import TimedGRPOTrainer
from grpo_exp.backends.trl.trainer_state import put_state, read_state
from grpo_exp.backends.trl.whole_saving import WholeSavingTrainer

_REFERENCE = "reference_model.pt"


@dataclass(frozen=True, slots=True)
class Part:
    """Something that has a state on each process: how it is read, and how it is put back."""

    read: Callable[[], Any]
    """Returns plain data and tensors."""
    put: Callable[[Any], None]
    """Takes what `read` returned."""


class CheckpointingTrainer(WholeSavingTrainer, TimedGRPOTrainer):
    """Trainer that saves whole checkpoints of GRPO, and goes on from them as if it had not stopped.

    Args:
        **kwargs: Arguments of WholeSavingTrainer and TimedGRPOTrainer.
    """

    def __init__(self, **kwargs: Any) -> None:
        #: What has a state besides TRL's trainer, by name. A checkpoint without one of them leaves it as it is.
        self.parts: dict[str, Part] = {}
        super().__init__(**kwargs)

    @property
    def _saves_reference(self) -> bool:
        return cast(GRPOConfig, self.args).sync_ref_model and self.ref_model is not None

    def _more_bytes(self) -> int:
        assert self.model is not None  # transformers' type allows for it
        return sum(weight.nbytes for weight in self.model.parameters()) if self._saves_reference else 0

    def _read_process_state(self) -> dict[str, Any]:
        return {"trainer": read_state(self), "parts": {name: part.read() for name, part in self.parts.items()}}

    def _put_process_state(self, state: dict[str, Any]) -> None:
        put_state(self, self._on_device(state["trainer"]))
        for name, part in self.parts.items():
            if name in state["parts"]:
                part.put(state["parts"][name])

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._saves_reference and self.accelerator.is_main_process:  # the same on every process
            reference: Any = self.accelerator.unwrap_model(self.ref_model)
            torch.save(reference.state_dict(), Path(output_dir) / _REFERENCE)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and self._saves_reference:
            reference: Any = self.accelerator.unwrap_model(self.ref_model)
            reference.load_state_dict(torch.load(Path(checkpoint) / _REFERENCE, map_location="cpu", weights_only=True))
