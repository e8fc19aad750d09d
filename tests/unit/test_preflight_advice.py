"""Advice of the literature: each rule speaks on its side of the number, and is silent on the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from grpo_exp import devices
from grpo_exp.preflight.advice import advice
from grpo_exp.preflight.shown_formats import other_place_note
from grpo_exp.settings import load

ROOT = Path(__file__).parents[2]

#: A run that no rule has anything to say about.
SOUND = ("model=qwen2_5_1_5b", "algorithm=dapo", "reward=math", "algorithm.num_generations=8", "tracker=none")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)


def settings_with_advice(*words: str) -> list[str]:
    settings = load.to_settings(load.compose([*SOUND, *words]))
    return [found.setting for found in advice(settings)]


def test_sound_settings_and_the_built_in_model_get_no_advice() -> None:
    assert settings_with_advice() == []
    assert settings_with_advice("model=tiny", "algorithm.temperature=0.3", "algorithm.num_generations=4") == []


#: Words, the setting that the advice names, words on the other side of the number.
RULES = {
    "rate of full fine-tuning": (
        ["trainer.learning_rate=6e-6"],
        "trainer.learning_rate=6e-06",
        ["trainer.learning_rate=5e-6"],
    ),
    "rate of an adapter": (
        ["model/lora=on", "trainer.learning_rate=2e-4"],
        "trainer.learning_rate=0.0002",
        ["model/lora=on", "trainer.learning_rate=1e-4"],
    ),
    "cold": (["algorithm.temperature=0.6"], "algorithm.temperature=0.6", ["algorithm.temperature=0.7"]),
    "hot": (["algorithm.temperature=1.1"], "algorithm.temperature=1.1", ["algorithm.temperature=1.0"]),
    "form": (
        ["reward.components.format.weight=0.3"],
        "reward.components.format.weight=0.3",
        ["reward.components.format.weight=0.2"],
    ),
    # 0.3 of an answer that pays 2 is 0.15 of it.
    "form of a dearer answer": (
        ["reward.components.format.weight=0.5", "reward.components.correctness.weight=2"],
        "reward.components.format.weight=0.5",
        ["reward.components.format.weight=0.3", "reward.components.correctness.weight=2"],
    ),
    "length bias": (
        ["algorithm=grpo", "algorithm.mask_truncated_completions=true", "trainer.max_completion_length=4096"],
        "algorithm.loss_type=grpo with trainer.max_completion_length=4096",
        ["algorithm=grpo", "algorithm.mask_truncated_completions=true", "trainer.max_completion_length=2048"],
    ),
    "used twice": (["algorithm.num_iterations=2"], "algorithm.num_iterations=2", []),
    "seventeen updates": (
        ["algorithm.updates_per_batch=17"],
        "algorithm.updates_per_batch=17",
        ["algorithm.updates_per_batch=16"],
    ),
    "many samples": (
        ["algorithm.num_generations=32"],
        "algorithm.num_generations=32",
        ["algorithm.num_generations=16"],
    ),
    "few samples": (["algorithm.num_generations=4"], "algorithm.num_generations=4", []),
    # 0.8 x 32768 = 26214.4.
    "context": (
        ["trainer.max_completion_length=26215"],
        "trainer.max_completion_length=26215",
        ["trainer.max_completion_length=26214"],
    ),
    "base model": (
        ["model.variant=base", "trainer.max_completion_length=2048"],
        "model.variant=base with reward.components.format",
        ["reward=math_only", "model.variant=base"],
    ),
    # A prompt that shows the form is what the advice asks for.
    "base model, another tag": (
        [
            "reward=countdown",
            "dataset=countdown",
            "model.variant=base",
            "reward.components.format.kind=tag_count",
            "~reward.components.format.require_reasoning",
            "+reward.components.format.tags=['[[']",
        ],
        "model.variant=base with reward.components.format",
        ["reward=countdown", "dataset=countdown", "model.variant=base"],
    ),
    "base model, shown": (
        ["model.variant=base", "trainer.max_completion_length=2048", "dataset.system_prompt='Think step by step.'"],
        "model.variant=base with reward.components.format",
        ["model.variant=base", "trainer.max_completion_length=2048", "dataset.system_prompt='Think in <think> tags.'"],
    ),
    "base model that is paid for thinking": (
        ["model.variant=base", "trainer.max_completion_length=2047", "dataset.system_prompt='Think in <think> tags.'"],
        "trainer.max_completion_length=2047",
        ["model.variant=base", "trainer.max_completion_length=2047", "reward=math_only"],
    ),
    "beta": (["algorithm.beta=0.02"], "algorithm.beta=0.02", ["algorithm.beta=0.01"]),
    "beta of grpo": (
        ["algorithm=grpo", "algorithm.mask_truncated_completions=true", "algorithm.beta=0.05"],
        "algorithm.beta=0.05",
        ["algorithm=grpo", "algorithm.mask_truncated_completions=true", "algorithm.beta=0.04"],
    ),
    "truncated": (
        ["algorithm=grpo"],
        "algorithm.mask_truncated_completions=false",
        ["algorithm=grpo", "trainer.max_completion_length=1023"],
    ),
    "short reasoning": (
        ["model=r1_distill_qwen_1_5b", "trainer.max_completion_length=2047"],
        "trainer.max_completion_length=2047",
        ["model=r1_distill_qwen_1_5b", "trainer.max_completion_length=2048"],
    ),
    "thinking that is switched off": (
        ["model=qwen3_0_6b", "trainer.max_completion_length=1024"],
        "trainer.max_completion_length=1024",
        ["model=qwen3_0_6b", "trainer.max_completion_length=1024", "model.chat_template_kwargs.enable_thinking=false"],
    ),
    "long reasoning": (
        ["model=r1_distill_qwen_1_5b", "trainer.max_completion_length=8193"],
        "trainer.max_completion_length=8193",
        ["model=r1_distill_qwen_1_5b", "trainer.max_completion_length=8192"],
    ),
    "share of vLLM": (
        ["vllm=colocate", "vllm.gpu_memory_utilization=0.5"],
        "vllm.gpu_memory_utilization=0.5",
        ["vllm=colocate", "vllm.gpu_memory_utilization=0.5", "vllm.enable_sleep_mode=true"],
    ),
}


@pytest.mark.parametrize(("words", "setting", "beyond"), RULES.values(), ids=RULES.keys())
def test_rule_speaks_on_one_side_of_its_number(words: list[str], setting: str, beyond: list[str]) -> None:
    assert settings_with_advice(*words) == [setting]
    assert settings_with_advice(*beyond) == []


def test_generation_without_vllm_is_told_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_with_advice("vllm=off") == []
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 1)
    assert settings_with_advice("vllm=off") == ["vllm=off"]
    assert settings_with_advice("vllm=colocate") == []


def test_each_advice_says_what_to_try_and_where_it_is_from_and_names_curves_that_exist() -> None:
    listed = (ROOT / "docs" / "metrics.md").read_text()
    for words, _, _ in RULES.values():
        for found in advice(load.to_settings(load.compose([*SOUND, *words]))):
            assert "; " in found.text  # why; what to try
            assert found.source
            for name in re.findall(r"train/[a-z_/]+", found.text):
                assert f"`{name}`" in listed, name


def test_context_of_a_local_model_is_read_from_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1000}))
    words = ["model=local", f"model.path={tmp_path}"]
    # 0.8 x 1000 = 800.
    assert settings_with_advice(*words, "trainer.max_completion_length=801") == ["trainer.max_completion_length=801"]
    assert settings_with_advice(*words, "trainer.max_completion_length=800") == []


def test_no_advice_contradicts_the_rate_of_a_model_preset() -> None:
    for option in load.groups("train")["model"]:
        path = ["model.path=somewhere"] if option in {"local", "hub"} else []
        found = settings_with_advice(f"model={option}", *path)
        assert not [setting for setting in found if setting.startswith("trainer.learning_rate")], option


@pytest.mark.parametrize(
    ("words", "looks", "asked"),
    [
        (["dataset=gsm8k", "reward=gsm8k"], "####", r"\boxed"),
        (["dataset=gsm8k", "reward=countdown"], "<answer>", r"\boxed"),
        (["dataset=countdown", "reward=math"], r"\boxed", "<answer>"),
    ],
)
def test_prompts_that_ask_for_another_place_than_the_reward_reads_are_noted(
    words: list[str], looks: str, asked: str
) -> None:
    (told,) = other_place_note(load.to_settings(load.compose([*SOUND, *words])))
    assert f"looks for the answer at {looks}, and the prompts ask for {asked}" in told


@pytest.mark.parametrize(
    "words",
    [
        ["dataset=gsm8k", "reward=math"],
        ["dataset=countdown", "reward=countdown"],
        ["dataset=gsm8k", "reward=gsm8k", "dataset.system_prompt='End with #### and the number.'"],
        ["dataset=gsm8k", "reward=gsm8k", "dataset.system_prompt=null"],
        ["dataset=dapo_math_17k", "reward=dapo"],
        ["dataset=code_contests", "reward=code"],
    ],
)
def test_prompts_that_ask_for_the_place_that_is_read_are_not_noted(words: list[str]) -> None:
    assert other_place_note(load.to_settings(load.compose([*SOUND, *words]))) == []
