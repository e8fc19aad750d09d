"""Settings of low-rank adapters; the names are those of peft's LoraConfig."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from grpo_exp.settings.base import FilledText, Float, FractionBelowOne, Int, Settings

#: peft's word for every linear layer but the output.
ALL_LINEAR = "all-linear"


def _one_name(value: Any) -> Any:
    """Read a name without a list around it as a list of one."""
    return (value,) if isinstance(value, str) else value


class LoraSettings(Settings):
    """Train the product of two small matrices beside each chosen weight W: W + (lora_alpha / r) B A.

    Source: arXiv:2106.09685, section 4.1; quantized weights below it: arXiv:2305.14314 (QLoRA).
    """

    enabled: bool = False
    """Train adapters; the weights stay as they are. `model/lora=on` also sets the learning rate."""
    r: Annotated[Int, Field(ge=1, le=4096)] = 32
    """Rank: rows of A and columns of B."""
    lora_alpha: Annotated[Float, Field(gt=0, le=65_536)] = 64.0
    """The adapter's output is multiplied by lora_alpha / r, or by lora_alpha / sqrt(r) with use_rslora."""
    lora_dropout: FractionBelowOne = 0.0
    """Dropout in front of A. With GRPO it makes the probabilities of the same tokens differ from pass to pass."""
    target_modules: Annotated[tuple[FilledText, ...], BeforeValidator(_one_name), Field(min_length=1)] = (ALL_LINEAR,)
    """Names of the layers that get an adapter, such as [q_proj,v_proj]; all-linear is every linear layer but the
    output."""
    use_rslora: bool = False
    """Scale by lora_alpha / sqrt(r) (arXiv:2312.03732), so that large ranks learn as fast as small ones."""
    quantization: Literal["none", "nf4"] = "none"
    """Hold the frozen weights in 4-bit NormalFloat (QLoRA) by bitsandbytes: a quarter of the memory of bfloat16."""
    double_quantization: bool = True
    """With quantization: quantize the scales, too, which saves about 0.4 bits a weight (QLoRA, section 3)."""

    @field_validator("target_modules")
    @classmethod
    def _can_be_trained(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "lm_head" in value:
            raise ValueError(
                "holds lm_head, whose weight TRL reads directly, so that an adapter on it would never be trained; "
                "leave it out"
            )
        if ALL_LINEAR in value and len(value) > 1:
            raise ValueError(f"holds {ALL_LINEAR}, which stands for all layers, beside names; write it alone")
        return value

    @property
    def is_quantized(self) -> bool:
        """Whether the frozen weights are held in 4 bits."""
        return self.enabled and self.quantization != "none"
