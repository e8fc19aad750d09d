"""Settings of an evaluation: which model, on which prompts, how it is sampled and judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import Float, Int, NoneText, PathText, PositiveFraction, Settings
from grpo_exp.settings.benchmark import BenchmarkSettings
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.model import CompletionLength, MicroBatch, ModelSettings
from grpo_exp.settings.reward import RewardSettings

Step = Annotated[Int, Field(ge=0, le=1_000_000_000)]


class VllmEngine(Settings):
    """vLLM in the process that evaluates."""

    gpu_memory_utilization: PositiveFraction = 0.9
    """Share of each GPU's memory."""
    tensor_parallel_size: Annotated[Int, Field(ge=1, le=64)] = 1
    """GPUs that the model is spread over."""
    max_model_length: Annotated[Annotated[Int, Field(ge=2, le=1_048_576)] | None, NoneText] = None
    """Longest prompt and completion, in tokens; null is the model's own."""


class EvaluationSettings(Settings):
    """Everything that defines an evaluation. Of a run, what is not given is taken from its settings."""

    seed: Annotated[Int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of sampling, of the intervals, and of procedural prompts."""
    model: ModelSettings
    """The policy; of a run its own."""
    dataset: DatasetSettings
    """Whose held-out prompts are meant with benchmark=held_out."""
    reward: RewardSettings
    """What judges; `reward.primary` decides what is right."""
    benchmark: BenchmarkSettings
    """The prompts."""
    num_samples: Annotated[Int, Field(ge=1, le=4096)]
    """Samples per prompt."""
    k: tuple[Annotated[Int, Field(ge=1, le=4096)], ...] = ()
    """Values of k for pass@k and maj@k; empty is 1, 2, 4 ... up to num_samples."""
    temperature: Annotated[Float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature; of a run that of training."""
    top_p: PositiveFraction = 1.0
    """Nucleus of sampling; 1 is everything."""
    max_completion_length: CompletionLength
    """Longest completion, in tokens; of a run that of training."""
    checkpoints: Literal["final", "all"] | tuple[Step, ...] = "final"
    """Of a run: the trained model, all checkpoints with the policy before training, or steps, 0 being that policy."""
    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """What samples; auto is vLLM where it is installed and a GPU is there."""
    batch_size: MicroBatch
    """Completions that transformers samples at a time."""
    vllm: VllmEngine = VllmEngine()
    """Settings of that engine."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where transformers computes."""
    output_dir: PathText = "outputs"
    """Where the results of a model go that belongs to no run: below `evaluations/`."""
    track: bool = True
    """Add the results to the curves of the run, and send them to its trackers."""

    @property
    def all_k(self) -> tuple[int, ...]:
        """The values of k, ascending."""
        if self.k:
            return tuple(sorted(set(self.k)))
        powers = [2**i for i in range(13) if 2**i <= self.num_samples]
        return tuple(sorted({*powers, self.num_samples}))

    @model_validator(mode="after")
    def _check(self) -> EvaluationSettings:
        too_large = [k for k in self.k if k > self.num_samples]
        if too_large:
            raise ValueError(
                f"k: {too_large[0]} is more than num_samples={self.num_samples}, and pass@k needs k samples of each "
                f"prompt; use num_samples={max(too_large)} or a smaller k"
            )
        return self
