"""What vLLM has to know about a run: its model, and in which type and length it computes."""

from __future__ import annotations

from grpo_exp.errors import ConfigError
from grpo_exp.seeding import derive_seed
from grpo_exp.settings.model import HubModel, LocalModel
from grpo_exp.settings.run import RunSettings

_AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}


def served_model(settings: RunSettings) -> str:
    """Return what `vllm serve` is to load: a folder, or a model of the hub.

    Raises:
        ConfigError: The model has no files that vLLM could load.
    """
    model = settings.model
    if not isinstance(model, LocalModel | HubModel) or model.path is None:
        raise ConfigError(
            f"model={model.kind}: has no files for a vLLM server to load before the run; use model=local "
            "model.path=FOLDER, or vllm=colocate"
        )
    return model.path


def engine_dtype(settings: RunSettings) -> str:
    """Return the type that the engine computes in: `float32`, `bfloat16` or `float16`.

    vLLM's own `auto` would run a float32 model in 16 bits, and its probabilities would differ from the trainer's.
    """
    vllm = settings.vllm
    if vllm.mode != "off" and vllm.dtype != "auto":
        return vllm.dtype
    if settings.launch.mixed_precision != "no":
        return _AUTOCAST[settings.launch.mixed_precision]
    return settings.model.weights_dtype


def needed_length(settings: RunSettings, longest_prompt: int) -> int:
    """Return the tokens that an engine must hold in one sequence.

    Args:
        settings: Of the run.
        longest_prompt: Of the training prompts, in tokens, chat template included.
    """
    return longest_prompt + settings.trainer.max_completion_length


def engine_length(settings: RunSettings) -> int | None:
    """Return the tokens of a sequence that the settings ask an engine to hold, or None where only the data tell.

    `vllm.max_model_length`, else the longest prompt that `dataset.max_prompt_length` lets through and its completion.
    """
    vllm, limit = settings.vllm, settings.dataset.max_prompt_length
    if vllm.mode != "off" and vllm.max_model_length is not None:
        return vllm.max_model_length
    return None if limit is None else needed_length(settings, limit)


def length_fault(settings: RunSettings, longest_prompt: int) -> str | None:
    """Return why `vllm.max_model_length` does not hold the prompts and their completions, or None."""
    vllm = settings.vllm
    if vllm.mode == "off" or vllm.max_model_length is None:
        return None
    needed = needed_length(settings, longest_prompt)
    if needed <= vllm.max_model_length:
        return None
    return (
        f"vllm.max_model_length={vllm.max_model_length}: the longest prompt has {longest_prompt} tokens, and with "
        f"trainer.max_completion_length={settings.trainer.max_completion_length} {needed} are needed; use "
        f"vllm.max_model_length={needed} or null, or leave long prompts out"
    )


def server_seed(settings: RunSettings) -> int:
    """Return the seed of a server of this run: two seeds must not sample the same completions."""
    return derive_seed(settings.seed, "vllm server")
