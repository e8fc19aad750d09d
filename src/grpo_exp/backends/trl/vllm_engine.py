"""What TRL does not tell vLLM: the type to compute in, the length to hold, and on a CPU to keep its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from transformers import PreTrainedTokenizerBase
from trl.generation import vllm_generation
from trl.trainer.grpo_config import GRPOConfig

from grpo_exp.data.prompts import PromptRow
from grpo_exp.errors import ConfigError
from grpo_exp.serving.place import server_url
from grpo_exp.serving.readiness import Wanted, wait_for_server
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import engine_dtype, length_fault, needed_length, served_model
from grpo_exp.vllm_package import find_vllm

#: Prompts that are tokenized together.
_AT_ONCE = 4096


def prepare_engine(
    settings: RunSettings,
    arguments: GRPOConfig,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[PromptRow],
    *,
    is_main_process: bool,
) -> None:
    """Check vLLM's length against the prompts, and give TRL's arguments the one that they need.

    A server is asked once more whether it is the right one: TRL's own loop takes any, and never ends on one that
    answers with an error.

    Args:
        settings: Of the run, with the place of its server.
        arguments: Of TRL; a colocated engine's length is written into them.
        tokenizer: Of the policy.
        rows: To train on.
        is_main_process: It alone talks to a server.

    Raises:
        ConfigError: `vllm.max_model_length` does not hold the longest prompt and its completion.
        RunError: The server is not the right one.
    """
    vllm = settings.vllm
    if vllm.mode == "off":
        return
    longest = longest_prompt(tokenizer, rows)
    fault = length_fault(settings, longest)
    if fault is not None:
        raise ConfigError(fault)
    needed = needed_length(settings, longest)
    if vllm.mode == "colocate":
        arguments.vllm_max_model_length = vllm.max_model_length or needed
    elif is_main_process:
        wanted = Wanted(served_model(settings), needed, processed_logprobs=vllm.importance_sampling_correction)
        wait_for_server(server_url(vllm), wanted, timeout_seconds=vllm.server_timeout_seconds)


def longest_prompt(tokenizer: PreTrainedTokenizerBase, rows: Sequence[PromptRow]) -> int:
    """Return the tokens of the longest prompt, as the policy is given it."""
    texts = [_text(tokenizer, row) for row in rows]
    return max(
        len(ids)
        for start in range(0, len(texts), _AT_ONCE)
        for ids in cast(Any, tokenizer(texts[start : start + _AT_ONCE], add_special_tokens=False))["input_ids"]
    )


def _text(tokenizer: PreTrainedTokenizerBase, row: PromptRow) -> str:
    messages: Any = list(row.prompt)
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


@contextmanager
def adapted_engine(settings: RunSettings) -> Iterator[None]:
    """Let a vLLM engine that TRL starts inside compute in the trainer's type, and take new weights on a CPU, too.

    TRL has no argument for these, so the class is replaced for as long as the trainer is built.
    """
    package = find_vllm()
    module = cast(Any, vllm_generation)  # has the class only where vLLM is installed
    if settings.vllm.mode != "colocate" or package is None:  # TRL says that it is missing
        yield
        return
    engine = module.LLM
    own = {"dtype": engine_dtype(settings), "enforce_eager": settings.vllm.enforce_eager}

    def build(*args: Any, **kwargs: Any) -> Any:
        with plain_linear_layers() if package.is_for_cpu else nullcontext():
            return engine(*args, **{**kwargs, **own})

    module.LLM = build
    try:
        yield
    finally:
        module.LLM = engine


@contextmanager
def plain_linear_layers() -> Iterator[None]:
    """Let vLLM build linear layers on a CPU that multiply by the weights they hold.

    Its fast kernels multiply by a packed copy and drop the weights, so that new ones have no place to go to: the first
    `load_weights` after it fails.
    """
    from vllm.model_executor.layers import utils  # type: ignore[import-not-found]

    fast = utils.dispatch_cpu_unquantized_gemm

    def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]

    utils.dispatch_cpu_unquantized_gemm = keep_weights
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = fast
