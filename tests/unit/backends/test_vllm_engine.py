"""What a vLLM engine is told besides TRL's arguments: the trainer's type, and a length that holds every prompt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trl.generation import vllm_generation

from grpo_exp.backends.trl import vllm_engine
from grpo_exp.backends.trl.vllm_engine import adapted_engine, longest_prompt, prepare_engine
from grpo_exp.data.prompts import PromptRow
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.settings.run import RunSettings
from grpo_exp.vllm_package import VllmPackage
from unit.run_folder import settings_of


def rows(*texts: str) -> list[PromptRow]:
    return [PromptRow(prompt=({"role": "user", "content": text},), target="1") for text in texts]


#: The tiny tokenizer has one token per character and one for each of <user> and <assistant>: 5 + 2 and 6 + 2.
ROWS = rows("1+23?", "12+34?", "1+2?")


def test_longest_prompt_is_counted_with_its_template() -> None:
    assert longest_prompt(build_tokenizer(), ROWS) == 6 + 2


def prepare(settings: RunSettings, *, is_main_process: bool = True) -> Any:
    arguments: Any = SimpleNamespace(vllm_max_model_length=None)
    prepare_engine(settings, arguments, build_tokenizer(), ROWS, is_main_process=is_main_process)
    return arguments.vllm_max_model_length


def test_engine_in_the_process_holds_the_longest_prompt_and_its_completion(tmp_path: Path) -> None:
    words = ("vllm=colocate", "trainer.max_completion_length=20")
    assert prepare(settings_of(tmp_path, *words)) == 8 + 20
    assert prepare(settings_of(tmp_path, *words, "vllm.max_model_length=100")) == 100
    with pytest.raises(ConfigError, match="the longest prompt has 8 tokens"):
        prepare(settings_of(tmp_path, *words, "vllm.max_model_length=27"))


def test_run_without_vllm_counts_nothing(tmp_path: Path) -> None:
    assert prepare(settings_of(tmp_path, "vllm=off")) is None


def test_server_is_asked_once_more_by_the_main_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(vllm_engine, "wait_for_server", lambda *words, **rest: asked.append(words))
    settings = settings_of(
        tmp_path,
        "vllm=server",
        "model=local",
        "model.path=/m",
        "vllm.server_port=21",
        "trainer.max_completion_length=20",
    )
    prepare(settings, is_main_process=False)
    assert asked == []
    prepare(settings)
    ((url, wanted),) = asked
    assert url == "http://127.0.0.1:21"
    assert (wanted.model, wanted.length, wanted.processed_logprobs) == ("/m", 28, True)


def test_server_that_is_no_longer_the_right_one_ends_the_start(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, "vllm=server", "model=local", "model.path=/m", "vllm.server_base_url=http://127.0.0.1:9",
        "vllm.server_timeout_seconds=0.1", "trainer.max_completion_length=20",
    )  # fmt: skip
    with pytest.raises(RunError, match="did not answer within"):
        prepare(settings)


class Engine:
    """Stands for vLLM's engine, which is not installed here: notes what it is built with."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs


@pytest.mark.parametrize(
    ("words", "dtype", "eager"),
    [((), "float32", False), (("launch.mixed_precision=bf16", "vllm.enforce_eager=true"), "bfloat16", True)],
)
def test_engine_is_built_in_the_trainers_type(
    words: tuple[str, ...], dtype: str, eager: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_engine, "find_vllm", lambda: VllmPackage("0.31.0", is_for_cpu=False))
    monkeypatch.setattr(vllm_generation, "LLM", Engine, raising=False)
    with adapted_engine(settings_of(tmp_path, "vllm=colocate", *words)):
        built: Any = vllm_generation.LLM(model="m", seed=1)  # type: ignore[attr-defined]
    assert built.kwargs == {"model": "m", "seed": 1, "dtype": dtype, "enforce_eager": eager}
    assert vllm_generation.LLM is Engine  # type: ignore[attr-defined]


def test_engine_class_is_left_alone_where_no_engine_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_engine, "find_vllm", lambda: VllmPackage("0.31.0", is_for_cpu=False))
    monkeypatch.setattr(vllm_generation, "LLM", Engine, raising=False)
    for words in (("vllm=off",), ("vllm=server",)):
        with adapted_engine(settings_of(tmp_path, *words)):
            assert vllm_generation.LLM is Engine  # type: ignore[attr-defined]
