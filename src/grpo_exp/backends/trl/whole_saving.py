"""Any of transformers' trainers with checkpoints that are whole or not there: written aside, sealed, renamed.

What a trainer holds besides weights, optimizer, schedule and random numbers is said by its subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from transformers import Trainer

from grpo_exp.backends.trl.agreement import together
from grpo_exp.checkpoints.store import Checkpoint, CheckpointStore
from grpo_exp.checkpoints.writing import CheckpointWriter
from grpo_exp.errors import RunError
from grpo_exp.settings.checkpoint import CheckpointSettings


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Where checkpoints go and when, the one to go on from, and what the run has to say about them."""

    store: CheckpointStore
    settings: CheckpointSettings
    resume: Checkpoint | None
    facts: Callable[[], Mapping[str, Any]]
    """Returns what else they hold, as JSON data; asked on the main process when all files have been written."""
    is_asked: Callable[[], bool] = lambda: False
    """Whether this process wants one behind the step that has just ended."""
    is_broken: Callable[[], bool] = lambda: False
    """Whether this process found that the step has broken the run, so that nobody should go on behind it."""


class WholeSavingTrainer(Trainer):
    """Trainer that saves whole checkpoints; to be mixed in front of the trainer whose state it saves.

    Args:
        plan: Where they go.
        facts: As in the plan, with what training itself has to add.
        on_saving: Told on each process, before one is written.
        on_saved: Told on each process the steps that are done, when one has been written and training goes on.
        **kwargs: Arguments of the trainer behind.
    """

    def __init__(
        self,
        *,
        plan: CheckpointPlan,
        facts: Callable[[], Mapping[str, Any]],
        on_saving: Callable[[], None],
        on_saved: Callable[[int], None],
        **kwargs: Any,
    ) -> None:
        self._checkpoint_store = plan.store
        self._checkpoint_writer = CheckpointWriter(plan.store, plan.settings)
        self._facts = facts
        self._on_saving = on_saving
        self._on_saved = on_saved
        self._is_saving = False
        super().__init__(**kwargs)

    # ---------------------------------------------------------------------------------------------- for subclasses

    def _read_process_state(self) -> dict[str, Any]:
        """Return what this process holds besides, as plain data and tensors; read when a step has been logged."""
        return {}

    def _put_process_state(self, state: dict[str, Any]) -> None:
        """Take what `_read_process_state` returned, when training has been set up and before its first micro-step."""

    def _more_bytes(self) -> int:
        """Return what else is saved, in bytes."""
        return 0

    # ---------------------------------------------------------------------------------------------- the folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.state.log_history.clear()  # metrics.jsonl has it, and checkpoints would grow with every step
        together(self.accelerator, self._on_saving, what="saving a checkpoint")
        writer, save = self._checkpoint_writer, super()._save_checkpoint
        self._is_saving = True
        try:
            self._on_main(lambda: writer.begin(self._estimate_bytes()))
            self._on_all(lambda: save(model, trial))
            self._on_main(lambda: writer.finish(self.state.global_step, self._facts()))
        finally:
            self._is_saving = False
        together(self.accelerator, lambda: self._on_saved(self.state.global_step), what="saving a checkpoint")

    def _on_main(self, work: Callable[[], None]) -> None:
        self._on_all(work if self.accelerator.is_main_process else lambda: None)

    def _on_all(self, work: Callable[[], None]) -> None:
        """Do a part of the saving; all processes go on when all have done theirs, and end when it failed on one."""

        def work_or_say_why() -> None:
            try:
                work()
            except Exception as error:
                raise self._checkpoint_writer.abandon(self.state.global_step, error) from error

        together(self.accelerator, work_or_say_why, what="saving a checkpoint")

    def _estimate_bytes(self) -> int:
        """Return what the weights that are saved and both of AdamW's moments take, as a first guess."""
        assert self.model is not None  # transformers' type allows for it
        weights = list(self.model.parameters())
        trained = sum(weight.nbytes for weight in weights if weight.requires_grad)
        saved = trained if self._is_peft else sum(weight.nbytes for weight in weights)
        return saved + 2 * trained + self._more_bytes()

    @property
    def _is_peft(self) -> bool:
        return hasattr(self.model, "peft_config")

    def _get_output_dir(self, trial: Any) -> str:
        store = self._checkpoint_store
        return str(store.partial if self._is_saving else store.folder)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: TRL would put one into the run's folder at each checkpoint."""

    # ---------------------------------------------------------------------------------------------- what is in it

    def _state_file(self, folder: str) -> Path:
        return Path(folder) / f"run_state_{self.args.process_index}.pt"

    def _save_rng_state(self, output_dir: str) -> None:
        # Called on every process, when a step has ended and its metrics have been logged.
        super()._save_rng_state(output_dir)
        torch.save(self._read_process_state(), self._state_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        # Called when training has been set up and the data are where they were, before the first micro-step.
        super()._load_rng_state(checkpoint)
        if checkpoint is not None:
            # To the CPU first: accelerate's own name for it on several processes, cpu:0, is none that torch reads to.
            self._put_process_state(torch.load(self._state_file(checkpoint), map_location="cpu", weights_only=True))

    def _on_device(self, state: Any) -> dict[str, Any]:
        return cast(dict[str, Any], send_to_device(state, self.accelerator.device))

    def _take_weights(self, checkpoint: Checkpoint) -> None:
        """Take the weights of a checkpoint behind which no step is left, and its number of steps."""
        self._load_from_checkpoint(str(checkpoint.path))
        self.state.global_step = checkpoint.step

    def train_behind(self, checkpoint: Checkpoint, *, max_steps: int) -> None:
        """Go on behind a checkpoint, to the last step.

        Raises:
            RunError: No step is left, and the weights are shared out over processes.
        """
        if checkpoint.step < max_steps:
            self.train(resume_from_checkpoint=str(checkpoint.path))
            return
        # transformers would make one step more
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise RunError(
                f"{checkpoint.path}: all steps are done and only the last evaluation is missing, for which weights "
                "that are shared out are not read outside of training; the trained model is in model/ of the attempt "
                "that made them, in logs/ of the run; with that folder taken away the same command goes on from the "
                f"checkpoint before, and where the rate is constant trainer.max_steps={max_steps + 1} from this one"
            )
        self._take_weights(checkpoint)
