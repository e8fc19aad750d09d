"""Settings of generation with vLLM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import FilledText, Float, Int, NoneText, PositiveFraction, Settings

Port = Annotated[Int, Field(ge=1, le=65_535)]

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class NoVllm(Settings):
    """Generate with transformers, in the training process."""

    mode: Literal["off"]


class _Vllm(Settings):
    importance_sampling_correction: bool = True
    """Correct for vLLM's probabilities differing from the trainer's."""
    importance_sampling_mode: ImportanceMode = "token_truncate"
    """`sequence_mask` (TRL's default) multiplies ratios over the sequence: it masks long completions out."""
    importance_sampling_clip_max: Annotated[Annotated[Float, Field(gt=0, le=1000)] | None, NoneText] = 3.0
    """Cap of the correction; null is none, which only the two `mask` modes can do without."""

    @model_validator(mode="after")
    def _has_a_cap(self) -> _Vllm:
        is_truncated = self.importance_sampling_correction and self.importance_sampling_mode.endswith("_truncate")
        if is_truncated and self.importance_sampling_clip_max is None:
            raise ValueError(
                f"importance_sampling_clip_max: null with importance_sampling_mode={self.importance_sampling_mode}, "
                "which cuts ratios off at it; give a number (3.0 is the default), or use token_mask or sequence_mask"
            )
        return self


class ColocatedVllm(_Vllm):
    """vLLM inside the training processes, on the same GPUs."""

    mode: Literal["colocate"]
    gpu_memory_utilization: PositiveFraction = 0.3
    """Share of each GPU's memory for vLLM."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=64)] = 1
    """GPUs per engine."""
    max_model_length: Annotated[Annotated[Int, Field(ge=2, le=1_048_576)] | None, NoneText] = None
    """Longest prompt and completion, in tokens; null is vLLM's choice."""
    enable_sleep_mode: bool = False
    """Give the memory back during the update."""


class ServerVllm(_Vllm):
    """A vLLM server that is already running."""

    mode: Literal["server"]
    server_host: FilledText = "127.0.0.1"
    """Host of the server."""
    server_port: Port = 8000
    """Port of the server."""
    group_port: Port = 51216
    """Port on the trainer that the server's workers dial for the weights."""
    server_timeout_seconds: Annotated[Float, Field(gt=0, le=86_400)] = 240.0
    """How long to wait for the server at the start."""


VllmSettings = Annotated[NoVllm | ColocatedVllm | ServerVllm, Field(discriminator="mode")]
