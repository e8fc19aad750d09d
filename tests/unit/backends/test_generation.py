"""Generation for held-out evaluation: the right completions to the right prompts, and random numbers of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import GenerationConfig

from grpo_exp.backends.trl.generation import SamplingPlan, _to_completion, build_generate, sampling_config
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.model import TinyArchitecture
from parity.real_trainer import build_trainer, save_policy

PROMPTS = [[{"role": "user", "content": text}] for text in ("1+1?", "12+13?", "7+8?")]
Build = Callable[..., Any]


@pytest.fixture(scope="module")
def build() -> Build:
    torch.set_num_threads(1)
    tokenizer = build_tokenizer()
    shape = TinyArchitecture(
        num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1
    )
    model = build_model(shape, 0)
    accelerator = Accelerator(cpu=True)
    config = GenerationConfig(
        max_new_tokens=8, do_sample=True, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )

    def make(batch_size: int = 64, seed: int = 0, before_batch: Any = None, processes: Any = accelerator) -> Any:
        return build_generate(model, tokenizer, config, processes, SamplingPlan(batch_size, seed, before_batch))

    return make


def test_each_prompt_gets_its_samples_in_order(build: Build) -> None:
    groups = build()(PROMPTS, 3)
    assert [len(group) for group in groups] == [3, 3, 3]
    assert all(1 <= completion.num_tokens <= 8 for group in groups for completion in group)


def test_samples_are_a_function_of_the_seed(build: Build) -> None:
    first, again, other = build()(PROMPTS, 3), build()(PROMPTS, 3), build(seed=1)(PROMPTS, 3)
    assert first == again
    assert first != other


def test_samples_of_one_prompt_differ(build: Build) -> None:
    """A hundred tokens, nearly uniform: eight equal ones twice in a row would be a miracle."""
    (group,) = build()(PROMPTS[:1], 4)
    assert len({completion.text for completion in group}) == 4


def test_greedy_is_one_answer_whatever_the_batch_and_the_seed(build: Build) -> None:
    """Prompts of unequal length: padding must not change the most likely completion."""
    together = build()(PROMPTS, 1, greedy=True)
    alone = [build(seed=5)([prompt], 1, greedy=True)[0] for prompt in PROMPTS]
    assert together == alone
    assert build(batch_size=2)(PROMPTS, 1, greedy=True) == together


def test_training_draws_the_same_numbers_afterwards(build: Build) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    build()(PROMPTS, 2)
    assert torch.equal(torch.rand(2), expected)


def test_sampling_can_be_ended_between_two_batches(build: Build) -> None:
    """3 prompts x 3 samples in batches of 4: asked 3 times; what is raised at the second one ends it there."""
    asked: list[int] = []

    def before_batch() -> None:
        asked.append(len(asked))
        if len(asked) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        build(batch_size=4, before_batch=before_batch)(PROMPTS, 3)
    assert asked == [0, 1]
    asked[:] = [7, 7]  # it does not raise any more
    assert build(batch_size=4, before_batch=before_batch)(PROMPTS, 3) == build(batch_size=4)(PROMPTS, 3)
    assert len(asked) == 2 + 3


@pytest.mark.parametrize(("rank", "completions"), [(0, 4), (1, 2)])
def test_processes_with_fewer_prompts_are_asked_as_often(rank: int, completions: int, build: Build) -> None:
    """3 prompts on 2 processes are 2 and 1; 2 samples in batches of 1 are 4 batches and 2, but both agree 4 times."""
    asked: list[None] = []
    processes = SimpleNamespace(process_index=rank, num_processes=2)
    groups = build(batch_size=1, before_batch=lambda: asked.append(None), processes=processes)(PROMPTS, 2)
    assert len(asked) == 4
    assert sum(len(group) for group in groups) == completions


def test_completion_ends_with_its_end_token_and_counts_it() -> None:
    """4, 2, <eos>, <pad>: three tokens, text 42, not cut; without an end it is cut."""
    tokenizer = build_tokenizer()
    four, two = tokenizer.encode("42")
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ended = _to_completion(tokenizer, [four, two, end, pad], {end})
    assert (ended.text, ended.num_tokens, ended.truncated) == ("42", 3, False)
    cut = _to_completion(tokenizer, [four, two, four], {end})
    assert (cut.text, cut.num_tokens, cut.truncated) == ("424", 3, True)


def test_evaluation_samples_as_training_does_also_where_training_samples_with_vllm(tmp_path: Path) -> None:
    """TRL builds its own configuration only without vLLM; told that there is vLLM, ours must have the same values."""
    save_policy(tmp_path / "policy")
    trainer = build_trainer(
        tmp_path / "policy", tmp_path / "out", "algorithm.temperature=0.7", "algorithm.top_p=0.9",
        "trainer.max_completion_length=7", "+trainer.extra.min_p=0.05", "+trainer.extra.repetition_penalty=1.1",
    )  # fmt: skip
    assert sampling_config(trainer) is trainer.generation_config
    of_trl = trainer.generation_config.to_dict()
    assert (of_trl["temperature"], of_trl["top_p"], of_trl["max_new_tokens"]) == (0.7, 0.9, 7)
    del trainer.generation_config
    trainer.use_vllm = True
    assert sampling_config(trainer).to_dict() == of_trl
