"""Samples with vLLM in this process. Written for the versions of the extra `vllm`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from grpo_exp.errors import ConfigError
from grpo_exp.evaluation.held_out import Completion, Generate
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.model import ModelSettings, location_of


def build_vllm_engine(settings: EvaluationSettings, model: ModelSettings) -> Generate:
    """Load a model into vLLM and return what samples from it.

    Raises:
        ConfigError: The folder holds an adapter only.
    """
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    source, revision, trust = _source(model)
    engine = LLM(
        model=source,
        tokenizer=source,
        revision=revision,
        trust_remote_code=trust,
        dtype="float32" if model.kind == "tiny" else model.weights_dtype,
        seed=settings.seed,
        gpu_memory_utilization=settings.vllm.gpu_memory_utilization,
        tensor_parallel_size=settings.vllm.tensor_parallel_size,
        max_model_len=settings.vllm.max_model_length,
    )
    tokenizer = AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=trust)

    def generate(prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
        ids = [_ids(tokenizer, prompt) for prompt in prompts]
        # A seed of its own for each prompt: one for all would draw the same numbers for each.
        sampling = [
            SamplingParams(
                n=num_samples,
                temperature=0.0 if greedy else settings.temperature,
                top_p=1.0 if greedy else settings.top_p,
                max_tokens=settings.max_completion_length,
                seed=settings.seed * 1_000_003 + place,
            )
            for place in range(len(prompts))
        ]
        results = engine.generate([{"prompt_token_ids": one} for one in ids], sampling)
        return [[_to_completion(output) for output in result.outputs] for result in results]

    return generate


def _source(model: ModelSettings) -> tuple[str, str | None, bool]:
    """Return folder or hub id, revision, and whether code that comes with it may run."""
    if model.prime_from is not None:
        return str(location_of(model)), None, model.kind != "tiny" and model.trust_remote_code
    if model.kind == "tiny":
        from grpo_exp.models.tiny import cached_folder, load_tiny

        load_tiny(model)  # builds it on first use
        return str(cached_folder(model)), None, False
    if model.kind == "smollm2_bundled":
        from grpo_exp.models.bundled import bundled_folder

        return str(bundled_folder()), None, False
    assert model.path is not None  # their validators refuse a null path
    if (Path(model.path) / "adapter_config.json").is_file() and not (Path(model.path) / "config.json").is_file():
        raise ConfigError(
            f"model.path={model.path}: holds an adapter and no whole model, which this engine does not load; "
            "use engine=transformers"
        )
    return model.path, model.revision, model.trust_remote_code


def _ids(tokenizer: PreTrainedTokenizerBase, prompt: Any) -> list[int]:
    """Return the tokens of a prompt as the trainer makes them: the template's text, and nothing put in front."""
    text = str(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False))
    return tokenizer(text, add_special_tokens=False)["input_ids"]  # pyright: ignore[reportReturnType]


def _to_completion(output: Any) -> Completion:
    return Completion(output.text, len(output.token_ids), output.finish_reason == "length")
