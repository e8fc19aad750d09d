"""Settings of the training loop."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    OptionalPositiveInt,
    PositiveFloat,
    PositiveInt,
    Settings,
    Text,
)


class TrainerSettings(Settings):
    """Length, batch and optimizer of a run."""

    max_steps: PositiveInt = 70
    """Optimizer steps; the x axis of every curve."""
    prompts_per_step: OptionalPositiveInt = 32
    """Prompts per optimizer step, over all processes. Give this or completions_per_step."""
    completions_per_step: OptionalPositiveInt = None
    """Completions per optimizer step, over all processes; must divide by num_generations."""
    per_device_train_batch_size: OptionalPositiveInt = None
    """Completions in one forward pass on one device; null is the most that divides, to model.max_micro_batch."""
    max_completion_length: PositiveInt
    """Longest completion, in tokens; the default comes from the model."""
    learning_rate: Annotated[PositiveFloat, Field(le=1)]
    """Peak learning rate of AdamW; the default comes from the model."""
    lr_scheduler_type: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    """Learning-rate schedule."""
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises from 0."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay of AdamW."""
    adam_beta1: Annotated[Fraction, Field(lt=1)] = 0.9
    """Decay of AdamW's first moment."""
    adam_beta2: Annotated[Fraction, Field(lt=1)] = 0.999
    """Decay of AdamW's second moment."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are scaled down to this L2 norm."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    eval_samples: PositiveInt = 4
    """Samples per held-out prompt, at the training temperature, before and after training."""
    eval_before: bool = True
    """Measure the held-out accuracy before training, too."""
    save_model: bool = True
    """Write the trained model into `model/` of the run folder."""
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
