"""KL from the initial policy, measured on completions of its own: a curve that needs no reference model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_trainer import GRPOTrainer

# Shapes: N completions of a generated batch on this process, B of them kept, P tokens of the longest kept prompt,
# T of the longest kept completion.


class KlProbe(TrainerCallback):
    """Keeps completions of the initial policy with their log-probabilities, and logs how far the policy has moved.

    `kl_from_start` is the k3 estimate (Schulman 2020, http://joschu.net/blog/kl-approx.html) of KL(initial || current):
    samples are the initial policy's, so with r = current / initial it is the mean of r - 1 - log r, in nats per token.

    Nothing here draws random numbers or uses dropout, so training is the same with and without it. All processes take
    part in each measurement, each with its own completions.

    Args:
        trainer: Its model is measured, at the temperature that it samples with.
        completions: How many are kept, over all processes; rounded up to as many on each.
        every_steps: Optimizer steps between two measurements; the last step is measured, too.
    """

    def __init__(self, trainer: GRPOTrainer, *, completions: int, every_steps: int) -> None:
        self._trainer = trainer
        self._completions = completions
        self._every_steps = every_steps
        self._kept: dict[str, torch.Tensor] = {}

    def keep(self, batch: Mapping[str, Any]) -> None:
        """Keep completions of the first generated batch; call it before the policy moves. Later batches are ignored.

        Args:
            batch: What `_generate_and_score_completions` returns: prompts padded left, completions padded right.
        """
        if self._kept:
            return
        num_rows = len(batch["completion_ids"])  # the same on every process, and so is what follows
        count = min(num_rows, math.ceil(self._completions / self._trainer.accelerator.num_processes))
        rows_B = torch.arange(count, device=batch["completion_ids"].device) * num_rows // count  # over all prompts
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        kept = {name: batch[name][rows_B] for name in names}
        kept["completion_mask"] = self._unfiltered(kept["completion_ids"], kept["completion_mask"])
        prompt_width, width = (int(kept[name].sum(1).max()) for name in ("prompt_mask", "completion_mask"))
        for name in names:
            tensor = kept[name]
            kept[name] = (tensor[:, -prompt_width:] if name.startswith("prompt") else tensor[:, :width]).clone()
        self._kept = {**kept, "log_probs": self._log_probs(kept)}

    def measure(self) -> float | None:
        """Return the KL from the initial policy in nats per token, at least 0; None where nothing has been kept."""
        if not self._kept:
            return None
        mask_BT = self._kept["completion_mask"].bool()
        log_ratio_BT = (self._log_probs(self._kept) - self._kept["log_probs"]).double().masked_fill(~mask_BT, 0.0)
        k3_BT = torch.expm1(log_ratio_BT) - log_ratio_BT  # exact where the ratio is near 1
        totals = torch.stack([k3_BT.sum(), mask_BT.sum().double()])
        if self._trainer.accelerator.num_processes > 1:
            totals = self._trainer.accelerator.reduce(totals, reduction="sum")
        assert isinstance(totals, torch.Tensor)  # what went in
        return float(totals[0] / totals[1])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure, and hand the value to the trainer, which logs it with the metrics of the step."""
        if state.global_step % self._every_steps and state.global_step != state.max_steps:
            return
        value = self.measure()
        if value is not None:
            self._trainer._metrics["train"]["kl_from_start"].append(value)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what this process has kept, on the CPU; empty before the first batch."""
        return {name: tensor.cpu() for name, tensor in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over what `state_dict` returned, in place of what a later batch would give."""
        device = self._trainer.accelerator.device
        self._kept = {name: tensor.to(device) for name, tensor in state.items()}

    def _unfiltered(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        """Return the mask with truncated completions in it: overlong filtering has emptied their rows."""
        pad: Any = self._trainer._tokenizer.pad_token_id
        filtered_B1 = mask_BT.sum(1, keepdim=True) == 0
        return torch.where(filtered_B1, ids_BT.ne(pad).to(mask_BT.dtype), mask_BT)

    @torch.no_grad()
    def _log_probs(self, kept: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the log-probability of each kept token under the policy as it is now (BT), without dropout."""
        trainer = self._trainer
        model: Any = trainer.model
        was_training = model.training
        model.eval()
        log_probs_BT, _, _ = trainer._get_per_token_logps_and_entropies(
            model,
            torch.cat([kept["prompt_ids"], kept["completion_ids"]], dim=1),
            torch.cat([kept["prompt_mask"], kept["completion_mask"]], dim=1),
            kept["completion_ids"].shape[1],
            batch_size=trainer.args.per_device_train_batch_size,
        )
        model.train(was_training)
        return log_probs_BT.float()
