"""Settings of the training loop."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, FractionBelowOne, Int, NoneText, Settings, Text
from grpo_exp.settings.checkpoint import CheckpointSettings
from grpo_exp.settings.completion_tables import CompletionTables
from grpo_exp.settings.model_values import CompletionLength, LearningRate, MicroBatch


class TrainerSettings(Settings):
    """Length, batch and optimizer of a run."""

    max_steps: Annotated[Int, Field(ge=1, le=1_000_000)] = 50
    """Optimizer steps; the x axis of every curve."""
    prompts_per_step: Annotated[Annotated[Int, Field(ge=1, le=16_384)] | None, NoneText] = 32
    """Prompts per optimizer step, over all processes. Give this or completions_per_step."""
    completions_per_step: Annotated[Annotated[Int, Field(ge=1, le=262_144)] | None, NoneText] = None
    """Completions per optimizer step, over all processes; must divide by num_generations."""
    per_device_train_batch_size: Annotated[MicroBatch | None, NoneText] = None
    """Completions in one forward pass on one device; null is the most that divides, to model.max_micro_batch."""
    max_completion_length: Annotated[CompletionLength, Field(examples=[1024])]
    """Longest completion, in tokens; the default comes from the model."""
    learning_rate: Annotated[LearningRate, Field(examples=[1e-6])]
    """Peak learning rate of AdamW; the default comes from the model."""
    lr_scheduler_type: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    """Learning-rate schedule."""
    warmup_steps: Annotated[Int, Field(ge=0, le=1_000_000)] = 0
    """Steps over which the rate rises from 0."""
    weight_decay: Annotated[Float, Field(ge=0, le=10)] = 0.0
    """Decoupled weight decay of AdamW."""
    adam_beta1: FractionBelowOne = 0.9
    """Decay of AdamW's first moment."""
    adam_beta2: FractionBelowOne = 0.999
    """Decay of AdamW's second moment."""
    max_grad_norm: Annotated[Float, Field(gt=0, le=1e6)] = 1.0
    """Gradients are scaled down to this L2 norm."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    fast_step: bool = True
    """Run no row without gradient and no padding that a micro-batch does not need: less time, the same gradient. Where
    it would change the result it is off by itself, and a note says why."""
    eval_samples: Annotated[Int, Field(ge=1, le=1024)] = 4
    """Samples per held-out prompt, at the training temperature, before and after training."""
    eval_before: bool = True
    """Measure the held-out accuracy before training, too."""
    save_model: bool = True
    """Write the trained model into `model/` of the run folder."""
    completions: CompletionTables = Field(default_factory=CompletionTables)
    """Tables of completions in the run folder."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """When the whole state is saved, so that a run goes on where it was."""
    max_wall_minutes: Annotated[Annotated[Float, Field(gt=0, le=525_600)] | None, NoneText] = None
    """Save and stop behind the first step that ends later than this, in minutes since the workers of this attempt were
    started; null is never."""
    slurm_margin_minutes: Annotated[Float, Field(ge=0, le=1440)] = 5.0
    """Inside a SLURM job: save and stop this long before its time limit, in minutes; 0 does not look at it. Must be
    longer than a step and a save. 5 is what `slurm/single.sbatch` has SLURM warn by."""
    extra: dict[Text, Any] = Field(default_factory=dict)
    """Other fields of TRL's GRPOConfig, by name; a field that a setting here owns is refused."""

    @model_validator(mode="after")
    def _check(self) -> TrainerSettings:
        given = [n for n in ("prompts_per_step", "completions_per_step") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"prompts_per_step, completions_per_step: {len(given)} of them are set and exactly one is "
                "wanted; set one and give the other null"
            )
        if self.warmup_steps and self.lr_scheduler_type == "constant":
            raise ValueError(
                f"warmup_steps: {self.warmup_steps} has no effect with lr_scheduler_type=constant; "
                "use constant_with_warmup, or 0"
            )
        return self
