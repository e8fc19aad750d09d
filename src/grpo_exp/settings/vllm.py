"""Settings of generation with vLLM: TRL's fields that begin with `vllm_`, and how a server of ours is started."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from grpo_exp.settings.base import FilledText, Float, Int, NoneText, OptionalText, PositiveFraction, Settings

Port = Annotated[Int, Field(ge=1, le=65_535)]
OptionalPort = Annotated[Port | None, NoneText]
ModelLength = Annotated[Int, Field(ge=2, le=1_048_576)]
Gpus = Annotated[Int, Field(ge=1, le=64)]
Ratio = Annotated[Float, Field(gt=0, le=1000)]

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
EngineDtype = Literal["auto", "float32", "bfloat16", "float16"]

#: Words of `vllm serve` that this package gives itself: given again they would contradict it.
OWN_OPTIONS = {
    "--host": "vllm.server_host", "--port": "vllm.server_port", "--dtype": "vllm.dtype",
    "--max-model-len": "vllm.max_model_length", "--seed": "seed", "--model-impl": "vllm.model_impl",
    "--tensor-parallel-size": "vllm.tensor_parallel_size", "-tp": "vllm.tensor_parallel_size",
    "--data-parallel-size": "vllm.data_parallel_size", "-dp": "vllm.data_parallel_size",
    "--gpu-memory-utilization": "vllm.gpu_memory_utilization", "--revision": "model.revision",
    "--trust-remote-code": "model.trust_remote_code", "--weight-transfer-config": None, "--logprobs-mode": None,
    "--enforce-eager": "vllm.enforce_eager", "--max-logprobs": None, "--enable-scale-out": None,
    "--served-model-name": None,
}  # fmt: skip


class NoVllm(Settings):
    """Generate with transformers, in the training process."""

    mode: Literal["off"]


class _Vllm(Settings):
    max_model_length: Annotated[ModelLength | None, NoneText] = None
    """Longest prompt and completion together, in tokens; null is the longest prompt plus
    `trainer.max_completion_length`."""
    dtype: EngineDtype = "auto"
    """Type of the engine's weights and activations; `auto` is that of the trainer's forward pass
    (`launch.mixed_precision`, else the model's), so that both give a token the same probability."""
    model_impl: Literal["vllm", "transformers"] = "vllm"
    """Whose code runs the model: vLLM's own, or transformers' inside of vLLM, slower, for models that vLLM lacks."""
    enforce_eager: bool = False
    """Neither compile the model nor capture CUDA graphs: vLLM starts minutes sooner, takes less memory, and samples
    more slowly."""
    structured_outputs_regex: OptionalText = None
    """Completions are forced to match this regular expression; null leaves them free."""
    importance_sampling_correction: bool = True
    """Correct for vLLM's probabilities differing from the trainer's."""
    importance_sampling_mode: ImportanceMode = "token_truncate"
    """`sequence_mask` (TRL's default) multiplies ratios over the sequence: it masks long completions out."""
    importance_sampling_clip_max: Annotated[Ratio | None, NoneText] = 3.0
    """Cap of the correction, a ratio of probabilities; null is none, which the `truncate` modes can do without only
    where there is a `clip_min`."""
    importance_sampling_clip_min: Annotated[Ratio | None, NoneText] = None
    """Floor of the correction; ratios below it are raised to it, or with the `mask` modes left out; null is none."""

    @model_validator(mode="after")
    def _has_bounds_that_fit(self) -> _Vllm:
        low, high = self.importance_sampling_clip_min, self.importance_sampling_clip_max
        is_truncated = self.importance_sampling_correction and self.importance_sampling_mode.endswith("_truncate")
        if is_truncated and high is None and low is None:
            raise ValueError(
                f"importance_sampling_clip_max: null with importance_sampling_mode={self.importance_sampling_mode}, "
                "which cuts ratios off at it; give a number (3.0 is the default), or use token_mask or sequence_mask"
            )
        if low is not None and high is not None and low >= high:
            raise ValueError(
                f"importance_sampling_clip_min: {low:g} is not below importance_sampling_clip_max ({high:g}), and no "
                "ratio lies between them; lower it, or leave it null"
            )
        return self


class ColocatedVllm(_Vllm):
    """vLLM inside the training processes, on the same GPUs."""

    mode: Literal["colocate"]
    gpu_memory_utilization: PositiveFraction = 0.3
    """Share of each GPU's memory for vLLM: its weights, activations and KV cache."""
    tensor_parallel_size: Gpus = 1
    """GPUs that share one engine, and one copy of the model."""
    enable_sleep_mode: bool = False
    """Give the memory back during the update: vLLM drops weights and cache, and gets them anew before it samples."""


def _no_own_option(value: str) -> str:
    name = value.partition("=")[0].replace("_", "-")  # vLLM reads both spellings
    if name in OWN_OPTIONS:
        owner = OWN_OPTIONS[name]
        fix = "leave it out" if owner is None else f"set {owner} instead"
        raise ValueError(f"{name} is given by grpo_exp itself, since the trainer depends on it; {fix}")
    return value


class ServerVllm(_Vllm):
    """A vLLM server on GPUs of its own: started by the run, `grpo-exp serve` or a batch script, or already there."""

    mode: Literal["server"]
    num_gpus: Annotated[Gpus | None, NoneText] = None
    """The last so many GPUs of this node serve and the others train; the run starts and ends the server itself. Null:
    somebody else starts it."""
    server_host: FilledText = "127.0.0.1"
    """Host of a server that is already running."""
    server_port: OptionalPort = None
    """Port of a server that is already running; null is the server of this run: of `num_gpus` or `grpo-exp serve`,
    which takes a free port."""
    server_base_url: OptionalText = None
    """Address of a server that is already running, such as `https://host/path`, instead of host and port."""
    group_port: OptionalPort = None
    """Port on the trainer that the server's workers dial for the weights; null is a free one."""
    server_timeout_seconds: Annotated[Float, Field(gt=0, le=86_400)] = 1800.0
    """How long to wait at the start until the server answers, in seconds: loading and compiling a large model takes
    many minutes."""
    gpu_memory_utilization: PositiveFraction = 0.9
    """Share of each serving GPU's memory: weights, activations and KV cache."""
    tensor_parallel_size: Annotated[Gpus | None, NoneText] = None
    """GPUs that share one copy of the model; null is all of `num_gpus`, 1 without it."""
    data_parallel_size: Gpus = 1
    """Copies of the model in one server; TRL's documentation advises 1 for models without experts."""
    serve_command: tuple[FilledText, ...] = ()
    """Words in front of `serve`, such as `[apptainer, exec, --nv, vllm.sif, vllm]`; empty is this Python's vLLM."""
    serve_options: tuple[Annotated[FilledText, AfterValidator(_no_own_option)], ...] = ()
    """Further words for `vllm serve`, such as `--enable-expert-parallel`."""

    @property
    def gpus_per_copy(self) -> int:
        """GPUs that share one copy of the model."""
        return self.tensor_parallel_size or max(1, (self.num_gpus or 1) // self.data_parallel_size)

    @property
    def is_own(self) -> bool:
        """Whether the run, `grpo-exp serve` or a batch script starts the server, and not somebody else."""
        return self.server_port is None and self.server_base_url is None

    @model_validator(mode="after")
    def _is_one_server(self) -> ServerVllm:
        if self.num_gpus is None:
            return self
        if not self.is_own:
            given = "server_port" if self.server_base_url is None else "server_base_url"
            raise ValueError(
                f"num_gpus, {given}: a server is to be started here, and one that is already running is to be used; "
                "give one of them null"
            )
        used = self.gpus_per_copy * self.data_parallel_size
        if used != self.num_gpus:
            raise ValueError(
                f"num_gpus: {self.num_gpus} GPUs serve, and {self.data_parallel_size} copies of the model on "
                f"{self.gpus_per_copy} each use {used}; use num_gpus={used}, or tensor_parallel_size=null"
            )
        return self


VllmSettings = Annotated[NoVllm | ColocatedVllm | ServerVllm, Field(discriminator="mode")]
