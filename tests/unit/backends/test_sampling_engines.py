"""What samples an evaluation: the choice, what transformers is asked for, and the calls to vLLM."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_exp.backends.sampling.engines import check_context, choose_engine
from grpo_exp.backends.sampling.transformers_engine import build_transformers_engine
from grpo_exp.backends.sampling.vllm_engine import build_vllm_engine
from grpo_exp.errors import ConfigError
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.load_evaluation import load_evaluation
from grpo_exp.settings.model import LocalModel, TinyArchitecture

PROMPTS = [[{"role": "user", "content": text}] for text in ("1+1?", "12+13?")]
SMALL = TinyArchitecture(
    num_hidden_layers=1, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1
)


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("without_vllm")
def test_vllm_that_is_not_installed_is_refused() -> None:
    assert choose_engine(load_evaluation([])) == "transformers"
    with pytest.raises(ConfigError, match=r"engine=vllm: vLLM is not installed here"):
        choose_engine(load_evaluation(["engine=vllm"]))


def test_completions_that_the_model_has_no_positions_for_are_refused() -> None:
    check_context(SimpleNamespace(max_position_embeddings=64), 63)
    with pytest.raises(ConfigError, match=r"max_completion_length=64: the model has 64 positions"):
        check_context(SimpleNamespace(max_position_embeddings=64), 64)


def test_transformers_samples_each_prompt_and_tells_how_far_it_is() -> None:
    told: list[int] = []
    settings = load_evaluation(["batch_size=4", "max_completion_length=6", "device=cpu"])
    generate = build_transformers_engine(settings, build_model(SMALL, 0), build_tokenizer(), on_batch=told.append)
    groups = generate(PROMPTS, 4)
    assert [len(group) for group in groups] == [4, 4]
    assert all(1 <= completion.num_tokens <= 6 for group in groups for completion in group)
    assert told == [0, 4]  # 8 completions in batches of 4
    assert [len(group) for group in generate(PROMPTS, 1, greedy=True)] == [1, 1]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put a module in place of vLLM that notes what it is asked and returns what vLLM would: nothing here runs it."""
    seen: dict[str, Any] = {}

    class LLM:
        def __init__(self, **options: Any) -> None:
            seen["engine"] = options

        def generate(self, prompts: list[Any], sampling: list[Any]) -> list[Any]:
            seen["prompts"], seen["sampling"] = prompts, sampling
            output = [SimpleNamespace(text="a", token_ids=[1, 2], finish_reason="stop"),
                      SimpleNamespace(text="b", token_ids=[1, 2, 3], finish_reason="length")]  # fmt: skip
            return [SimpleNamespace(outputs=output[: one.n]) for one in sampling]

    module = ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.__dict__.update(LLM=LLM, SamplingParams=lambda **options: SimpleNamespace(**options))
    monkeypatch.setitem(sys.modules, "vllm", module)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build_model(SMALL, 0).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_vllm_gets_tokens_and_a_seed_for_each_prompt(vllm: dict[str, Any], folder: Path) -> None:
    settings = load_evaluation(["seed=2", "temperature=0.6", "max_completion_length=9", "vllm.tensor_parallel_size=2"])
    generate = build_vllm_engine(settings, LocalModel(kind="local", path=str(folder), dtype="bfloat16"))
    groups = generate(PROMPTS, 2)
    assert (vllm["engine"]["model"], vllm["engine"]["dtype"], vllm["engine"]["tensor_parallel_size"]) == (
        str(folder), "bfloat16", 2
    )  # fmt: skip
    tokenizer = build_tokenizer()
    text = tokenizer.apply_chat_template(PROMPTS[0], add_generation_prompt=True, tokenize=False)
    assert vllm["prompts"][0] == {"prompt_token_ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
    first, second = vllm["sampling"]
    assert (first.n, first.temperature, first.max_tokens) == (2, 0.6, 9)
    assert first.seed != second.seed
    assert [(c.text, c.num_tokens, c.truncated) for c in groups[0]] == [("a", 2, False), ("b", 3, True)]
    generate(PROMPTS, 1, greedy=True)
    assert {one.temperature for one in vllm["sampling"]} == {0.0}


def test_vllm_loads_the_weights_of_the_run_that_the_model_begins_with(vllm: dict[str, Any], folder: Path) -> None:
    """The policy before training is the fine-tuned one, not the model below it."""
    run = folder / "run"
    run.mkdir()
    (run / "model").symlink_to(folder)
    build_vllm_engine(load_evaluation([]), LocalModel(kind="local", path="elsewhere", prime_from=str(run)))
    assert vllm["engine"]["model"] == str(run / "model")


def test_vllm_does_not_load_an_adapter(vllm: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds an adapter and no whole model"):
        build_vllm_engine(load_evaluation([]), LocalModel(kind="local", path=str(tmp_path)))
