"""Types of values that settings of models and of the trainer share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import Float, Int

LearningRate = Annotated[Float, Field(gt=0, le=1)]
CompletionLength = Annotated[Int, Field(ge=1, le=1_048_576)]
MicroBatch = Annotated[Int, Field(ge=1, le=65_536)]
Dtype = Literal["float32", "bfloat16", "float16"]
MixedPrecision = Literal["no", "bf16", "fp16"]

#: What `model.prime_from` says where the run to begin with is to be made first.
PRIME_FIRST = "sft"
