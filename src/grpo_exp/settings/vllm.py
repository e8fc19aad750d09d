"""Settings of generation with vLLM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grpo_exp.settings.base import (
    Fraction,
    OptionalPositiveFloat,
    OptionalPositiveInt,
    PositiveFloat,
    PositiveInt,
    Settings,
    Text,
)

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class NoVllm(Settings):
    """Generate with transformers, in the training process."""

    mode: Literal["off"]


class _Vllm(Settings):
    importance_sampling_correction: bool = True
    """Correct for vLLM's probabilities differing from the trainer's."""
    importance_sampling_mode: ImportanceMode = "token_truncate"
    """`sequence_mask` (TRL's default) multiplies ratios over the sequence: it masks long completions out."""
    importance_sampling_clip_max: OptionalPositiveFloat = 3.0
    """Cap of the correction."""


class ColocatedVllm(_Vllm):
    """vLLM inside the training processes, on the same GPUs."""

    mode: Literal["colocate"]
    gpu_memory_utilization: Annotated[Fraction, Field(gt=0)] = 0.3
    """Share of each GPU's memory for vLLM."""
    tensor_parallel_size: PositiveInt = 1
    """GPUs per engine."""
    max_model_length: OptionalPositiveInt = None
    """Longest prompt and completion, in tokens; null is vLLM's choice."""
    enable_sleep_mode: bool = False
    """Give the memory back during the update."""


class ServerVllm(_Vllm):
    """A vLLM server that is already running."""

    mode: Literal["server"]
    server_host: Text = "127.0.0.1"
    """Host of the server."""
    server_port: Annotated[PositiveInt, Field(le=65535)] = 8000
    """Port of the server."""
    group_port: Annotated[PositiveInt, Field(le=65535)] = 51216
    """Port on the trainer that the server's workers dial for the weights."""
    server_timeout_seconds: PositiveFloat = 240.0
    """How long to wait for the server at the start."""


VllmSettings = Annotated[NoVllm | ColocatedVllm | ServerVllm, Field(discriminator="mode")]
