"""Settings of the built-in policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Fraction, Int, OptionalPath, Settings
from grpo_exp.settings.lora import LoraSettings
from grpo_exp.settings.model_values import CompletionLength, Dtype, LearningRate, MicroBatch, MixedPrecision

#: The built-in policy is primed on a CPU; this many parameters already take an hour there and 2 GB with AdamW.
_MAX_TINY_PARAMETERS = 100_000_000


class TinyArchitecture(Settings):
    """Shape of the built-in policy: Qwen2, with one token per character."""

    num_hidden_layers: Annotated[Int, Field(ge=1, le=64)] = 2
    """Transformer layers; two wide ones cost a CPU less than four narrow ones of the same size."""
    hidden_size: Annotated[Int, Field(ge=2, le=4096)] = 192
    """Width of the residual stream."""
    intermediate_size: Annotated[Int, Field(ge=1, le=16_384)] = 576
    """Width of the MLP."""
    num_attention_heads: Annotated[Int, Field(ge=1, le=128)] = 4
    """Query heads."""
    num_key_value_heads: Annotated[Int, Field(ge=1, le=128)] = 2
    """Key and value heads."""
    max_position_embeddings: Annotated[Int, Field(ge=32, le=32_768)] = 512
    """Longest prompt and completion together, in tokens."""

    @property
    def num_parameters(self) -> int:
        """Weights of the layers; embeddings of a hundred characters and norms are left out."""
        head_size = self.hidden_size // self.num_attention_heads
        attention = 2 * self.hidden_size * (self.hidden_size + self.num_key_value_heads * head_size)
        return self.num_hidden_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @model_validator(mode="after")
    def _check(self) -> TinyArchitecture:
        heads = self.num_attention_heads
        if self.hidden_size % (2 * heads):
            # Rotary embeddings turn pairs of numbers, so a head holds an even count of them.
            below = self.hidden_size // (2 * heads) * 2 * heads
            near = " or ".join(str(size) for size in (below, below + 2 * heads) if size)
            raise ValueError(
                f"hidden_size: {self.hidden_size} does not divide by 2 x num_attention_heads ({2 * heads}); the heads "
                f"share the width equally and each needs an even part of it; use {near}"
            )
        if heads % self.num_key_value_heads:
            near = max(n for n in range(1, self.num_key_value_heads) if heads % n == 0)
            raise ValueError(
                f"num_key_value_heads: {heads} query heads do not divide by {self.num_key_value_heads}; use a divisor, "
                f"for example {near}"
            )
        if self.num_parameters > _MAX_TINY_PARAMETERS:
            raise ValueError(
                f"num_hidden_layers, hidden_size, intermediate_size: make {self.num_parameters / 1e6:,.0f} million "
                f"parameters and the built-in policy has at most {_MAX_TINY_PARAMETERS / 1e6:.0f}, since it is primed "
                "here; lower them, or use model=local for a real model"
            )
        return self


class Priming(Settings):
    """Supervised priming of the built-in policy on answers of a noisy teacher.

    GRPO can only reinforce what is sampled now and then, so the model must have seen the format. The teacher
    gives a right and boxed answer in less than half of the cases: what GRPO adds afterwards is visible.
    """

    seed: Annotated[Int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of weights, problems and noise. Apart from the run's seed: all seeds start from one policy."""
    steps: Annotated[Int, Field(ge=1, le=20_000)] = 400
    """Optimizer steps."""
    batch_size: Annotated[Int, Field(ge=1, le=1024)] = 64
    """Examples per step."""
    learning_rate: LearningRate = 2e-3
    """Peak of the schedule (linear warm-up over 5 % of the steps, then cosine to 0)."""
    max_operand: Annotated[Int, Field(ge=9, le=999)] = 29
    """Largest operand in the examples, as `dataset.max_operand`."""
    fraction_right_boxed: Fraction = 0.42
    """Share of examples that are right and boxed."""
    fraction_right_unboxed: Fraction = 0.42
    """Share that is right but not boxed: no answer in the sense of the reward. The rest is wrong and boxed."""

    @model_validator(mode="after")
    def _check(self) -> Priming:
        total = self.fraction_right_boxed + self.fraction_right_unboxed
        if total > 1:
            raise ValueError(
                f"fraction_right_boxed, fraction_right_unboxed: their sum is {total:g}, above 1; they are shares of "
                "the examples, so lower one"
            )
        return self


class TinyModel(Settings):
    """The built-in policy: about a million parameters, built and primed on first use, then cached."""

    kind: Literal["tiny"]
    learning_rate: LearningRate = 1e-4
    """Default of `trainer.learning_rate` for this model."""
    lora_learning_rate: LearningRate = 1e-3
    """What `learning_rate` is with `model/lora=on`."""
    max_completion_length: CompletionLength = 20
    """Default of `trainer.max_completion_length`, in tokens; the longest right answer takes 15."""
    max_micro_batch: MicroBatch = 256
    """Most completions in one forward pass, where `trainer.per_device_train_batch_size` is null."""
    architecture: TinyArchitecture = TinyArchitecture()
    """Shape of the network."""
    priming: Priming = Priming()
    """How it learns the format."""
    mixed_precision: MixedPrecision = "no"
    """Default of `launch.mixed_precision` for this model."""
    gradient_checkpointing: bool = False
    """Default of `trainer.gradient_checkpointing` for this model."""
    prime_from: OptionalPath = None
    """Folder of a run whose trained weights are what this one begins with, such as one of `grpo-exp sft`; null begins
    with the model itself. `sft` makes that run first, with the same words."""
    lora: LoraSettings = LoraSettings()
    """Train small matrices beside the weights instead of the weights."""

    @property
    def weights_dtype(self) -> Dtype:
        """Type of the weights in memory."""
        return "float32"

    @property
    def opens_reasoning(self) -> bool:
        """Whether the prompt ends inside the reasoning: its template writes no tag."""
        return False
