"""A cheaper training step with the same gradient: no row without gradient, no padding that a micro-batch does not need.

What TRL 1.16 divides its loss by, and what keeps the gradient that of the full batch when micro-batches hold other rows
(`_compute_loss`; B rows of a stock micro-batch, b rows of ours):

    grpo, sapo   mean over the rows of the micro-batch of their token means   x b / B
    luspo        mean over the rows of the micro-batch of their token sums    x b / B
    dr_grpo      sum over tokens / (rows x max_completion_length)             x b / B
    dapo, cispo, vespo   sum over tokens / tokens of the generated batch      as it is
    bnpo         sum over tokens / tokens of the micro-batch                  depends on the split: off

All are divided by the number of micro-steps, which stays. Rows never leave their optimizer step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

import torch
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import PreTrainedModel
from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.backends.trl.agreement import gathering_unequal_rows
from grpo_exp.backends.trl.logps_pass import in_length_order
from grpo_exp.backends.trl.micro_batches import Batch, LayoutRules, MicroBatch, count, join, lay_out
from grpo_exp.backends.trl.model_traits import ignores_left_padding, layout_fault
from grpo_exp.backends.trl.step_metrics import Accounting, StepMetrics
from grpo_exp.backends.trl.trainer import TimedGRPOTrainer

# Shapes: N rows of a pass, B rows of a chunk of it, L tokens of a row, T completion tokens; U optimizer steps of a
# generated batch, A micro-steps of each, K counts.

#: Loss type -> whether TRL divides by the rows of the micro-batch.
_DIVIDES_BY_ROWS = {
    "grpo": True, "sapo": True, "luspo": True, "dr_grpo": True, "dapo": False, "cispo": False, "vespo": False,
}  # fmt: skip
#: Beside TRL's tensors in a micro-batch that was laid out anew.
_ACCOUNTING = "accounting"


class FastStepTrainer(TimedGRPOTrainer):
    """TimedGRPOTrainer that lays the micro-batches of each optimizer step out anew.

    Args:
        **kwargs: TimedGRPOTrainer's. The loss type is not bnpo, and nothing in them makes the loss of a row depend on
            other rows of its micro-batch; see `settings/fast_step.py`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        model = cast(PreTrainedModel, self.model)
        self.fast_step_fault = layout_fault(model, aux_loss_enabled=self.aux_loss_enabled)
        self._cuts_prompts = ignores_left_padding(model)
        self._step_metrics = StepMetrics(sequence_level=self.importance_sampling_level == "sequence")
        # One generated batch is whole optimizer steps: rows may change places within one only.
        arguments = cast(GRPOConfig, self.args)
        assert arguments.steps_per_generation is not None
        assert arguments.steps_per_generation % arguments.gradient_accumulation_steps == 0

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        assert self.model is not None  # transformers' type allows for it
        if self.fast_step_fault is not None or not self.model.training or self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = self._lay_out_anew(cast(list[Batch], self._buffered_inputs))
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _lay_out_anew(self, micro_batches: list[Batch]) -> list[Batch]:
        """Return as many micro-batches, with the same rows in each optimizer step but those without gradient."""
        num_parts = self.args.gradient_accumulation_steps
        rules = LayoutRules(
            num_parts=num_parts,
            by_advantage=self.beta == 0.0,
            cut_prompts=self._cuts_prompts,
            fill=self.accelerator.distributed_type != DistributedType.NO,
        )
        batches = [join(micro_batches[i : i + num_parts]) for i in range(0, len(micro_batches), num_parts)]
        layouts = [lay_out(batch, rules) for batch in batches]
        counts_UAK = torch.tensor(
            [count(batch, layout) for batch, layout in zip(batches, layouts, strict=True)],
            device=self.accelerator.device,
        )
        # Every process generates at the same time, so that all of them meet here.
        summed_UAK = cast(Tensor, self.accelerator.reduce(counts_UAK, reduction="sum")).tolist()
        return [
            {**part.inputs, _ACCOUNTING: self._account(part, counts_K, is_last=place == num_parts - 1)}
            for layout, counts_AK in zip(layouts, summed_UAK, strict=True)
            for place, (part, counts_K) in enumerate(zip(layout, counts_AK, strict=True))
        ]

    def _account(self, part: MicroBatch, counts_K: Sequence[int], *, is_last: bool) -> Accounting:
        tokens, rows, stand_ins, all_tokens, all_rows, left_out = counts_K
        share = part.num_rows / self.args.per_device_train_batch_size
        return Accounting(
            loss_scale=share if _DIVIDES_BY_ROWS[self.loss_type] else 1.0,
            tokens=tokens,
            rows=rows,
            stand_ins=stand_ins,
            all_tokens=all_tokens,
            all_rows=all_rows,
            left_out=left_out,
            is_last=is_last,
        )

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if _ACCOUNTING not in inputs:  # as TRL made it: the fast step is off, or this is an evaluation
            return super()._compute_loss(model, inputs)
        accounting: Accounting = inputs[_ACCOUNTING]
        collected: defaultdict[str, list[float]] = defaultdict(list)
        if "completion_ids" in inputs:
            logged, self._metrics["train"] = self._metrics["train"], collected
            try:
                with gathering_unequal_rows(self.accelerator):
                    loss = super()._compute_loss(model, inputs) * accounting["loss_scale"]
            finally:
                self._metrics["train"] = logged
        else:
            loss = self._zero_loss()
        for name, value in self._step_metrics.add(collected, accounting).items():
            self._metrics["train"][name].append(value)
        return loss

    def _zero_loss(self) -> Tensor:
        """Return 0 with a graph, for a micro-step without rows on the only process.

        It goes through one small weight: the first micro-batch of the step went through the model, so that all
        gradients exist by now.
        """
        assert self.model is not None  # transformers' type allows for it
        smallest = min((weight for weight in self.model.parameters() if weight.requires_grad), key=Tensor.numel)
        return (smallest * 0.0).sum().float()

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        # With a batch size it is a pass over the whole generated batch, for the old or the reference policy. TRL's
        # other arguments are None for text, but for the two switches.
        compute = super()._get_per_token_logps_and_entropies
        is_text = all(value is None or value is False for name, value in kwargs.items() if name != "compute_entropy")
        if batch_size is None or self.fast_step_fault is not None or not is_text:
            return compute(model, input_ids, attention_mask, logits_to_keep, batch_size=batch_size, **kwargs)

        def run(ids_BL: Tensor, mask_BL: Tensor, width: int) -> tuple[Tensor, Tensor | None]:
            logps_BT, entropies_BT, _ = compute(model, ids_BL, mask_BL, width, **kwargs)
            return logps_BT, entropies_BT

        logps_NT, entropies_NT = in_length_order(
            run,
            input_ids,
            attention_mask,
            width=logits_to_keep,
            num_chunks=-(-len(input_ids) // batch_size),
            cut_prompts=self._cuts_prompts,
        )
        return logps_NT, entropies_NT, None
