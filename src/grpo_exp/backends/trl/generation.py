"""Generation for held-out evaluation, with the weights as they are now, in the training process."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from grpo_exp.evaluation.held_out import Completion

# Shapes: B sequences of a batch, T tokens of the longest prompt and completion.


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How the prompts are sampled."""

    batch_size: int
    """Sequences of one batch, at most."""
    seed: int
    """Of the random numbers; each process draws its own from it."""
    before_batch: Callable[[], None] | None = None
    """Called before each batch, equally often on all processes, so that they can agree on something there. What it
    raises ends the sampling."""
    together: bool = False
    """Each forward pass gathers weights from all processes, so that all of them must make equally many."""


def sampling_config(trainer: GRPOTrainer) -> GenerationConfig:
    """Return what transformers samples with in this trainer, also where training samples with vLLM.

    TRL builds one only without vLLM; the values are the same.
    """
    if not trainer.use_vllm:
        return trainer.generation_config
    values = {
        "max_new_tokens": trainer.max_completion_length,
        "do_sample": True,
        "pad_token_id": trainer._tokenizer.pad_token_id,
        "bos_token_id": trainer._tokenizer.bos_token_id,
        "eos_token_id": trainer.eos_token_ids,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,
        "min_p": trainer.min_p,
        "repetition_penalty": trainer.repetition_penalty,
        "cache_implementation": cast(GRPOConfig, trainer.args).cache_implementation,
    }
    return GenerationConfig(**values, disable_compile=True)


def build_generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    generation_config: GenerationConfig,
    accelerator: Accelerator,
    plan: SamplingPlan,
) -> Callable[..., list[list[Completion]]]:
    """Return `generate(prompts, num_samples, greedy=False)`.

    It returns the completions of each prompt, in order, on every process; prompts are shared out over the
    processes. Its random numbers are its own: evaluating does not change what training draws.
    """

    def generate(prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
        rank, world = accelerator.process_index, accelerator.num_processes
        mine = list(range(rank, len(prompts), world))
        texts = [_text(tokenizer, prompts[i]) for i in mine]
        repeated = [text for text in texts for _ in range(num_samples)]
        config = _greedy(generation_config) if greedy else generation_config
        # Of the process with the most prompts: another one may have a batch less, and takes part with none.
        num_batches = math.ceil(math.ceil(len(prompts) / world) * num_samples / plan.batch_size)
        found: list[Completion] = []
        with torch.random.fork_rng():
            torch.manual_seed(plan.seed * 1_000_003 + rank)
            for start in range(0, num_batches * plan.batch_size, plan.batch_size):
                if plan.before_batch is not None:
                    plan.before_batch()
                batch = repeated[start : start + plan.batch_size]
                if batch:
                    found += _generate(model, tokenizer, config, batch, together=plan.together)
                elif plan.together:  # others have a batch: take part in theirs with a prompt that nobody counts
                    _generate(model, tokenizer, config, [_text(tokenizer, prompts[0])], together=True)
        groups = [found[i * num_samples : (i + 1) * num_samples] for i in range(len(mine))]
        gathered = gather_object(list(zip(mine, groups, strict=True)))
        return [group for _, group in sorted(gathered, key=lambda pair: pair[0])]

    return generate


def _text(tokenizer: PreTrainedTokenizerBase, prompt: Any) -> str:
    return str(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False))


def _greedy(config: GenerationConfig) -> GenerationConfig:
    greedy = copy.deepcopy(config)
    greedy.update(do_sample=False, temperature=None, top_p=None, top_k=None, min_p=None)
    return greedy


@torch.no_grad()
def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: GenerationConfig,
    texts: list[str],
    *,
    together: bool,
) -> list[Completion]:
    was_training = model.training
    model.eval()
    encoded = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False).to(
        model.device
    )
    output_BT = cast(Any, model).generate(
        input_ids=encoded["input_ids"],
        attention_mask=encoded["attention_mask"],
        generation_config=config,
        synced_gpus=together,  # goes on with dummy passes until the longest completion of all processes has ended
    )
    model.train(was_training)
    eos = config.eos_token_id
    ends = set(eos if isinstance(eos, list) else [eos])
    return [
        _to_completion(tokenizer, ids, ends) for ids in output_BT[:, encoded["input_ids"].shape[1] :].cpu().tolist()
    ]


def _to_completion(tokenizer: PreTrainedTokenizerBase, ids: list[int], ends: set[int]) -> Completion:
    end = next((i for i, token in enumerate(ids) if token in ends), None)
    kept = ids if end is None else ids[: end + 1]
    text = tokenizer.decode(kept, skip_special_tokens=True)
    return Completion(text=str(text), num_tokens=len(kept), truncated=end is None)
