"""Settings of an evaluation: a run's own where nothing else is typed, and faults told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.settings.load_evaluation import load_evaluation
from unit.run_folder import settings_of


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    words = ("algorithm.temperature=0.7", "dataset.max_operand=99", "trainer.max_completion_length=17", "seed=3",
             "reward=math_only")  # fmt: skip
    return settings_of(Path("nowhere"), *words).model_dump(mode="json")


def test_a_run_brings_its_own_settings(run: dict[str, Any]) -> None:
    settings = load_evaluation([], run=run)
    assert (settings.temperature, settings.max_completion_length, settings.seed) == (0.7, 17, 3)
    assert settings.dataset.kind == "arithmetic"
    assert settings.dataset.max_operand == 99
    assert list(settings.reward.components) == ["correctness"]


def test_words_win_over_the_run(run: dict[str, Any]) -> None:
    settings = load_evaluation(["temperature=1.0", "dataset.max_operand=9", "reward=math", "num_samples=16"], run=run)
    assert (settings.temperature, settings.num_samples) == (1.0, 16)
    assert settings.dataset.kind == "arithmetic"
    assert settings.dataset.max_operand == 9
    assert list(settings.reward.components) == ["correctness", "format"]


def test_held_out_prompts_of_another_data_set_are_another_benchmark(run: dict[str, Any]) -> None:
    """Under one name they would take the place of the run's own results at that step, and be points of one curve."""
    assert load_evaluation(["dataset.eval_size=50"], run=run).benchmark.name == "held_out"
    assert load_evaluation(["dataset=countdown"], run=run).benchmark.name == "held_out_countdown"
    assert load_evaluation(["dataset=countdown", "benchmark.name=mine"], run=run).benchmark.name == "mine"
    assert load_evaluation(["dataset=countdown"]).benchmark.name == "held_out"  # of a model, which has none of its own


def test_k_is_the_powers_of_two_up_to_the_number_of_samples() -> None:
    assert load_evaluation(["num_samples=12"]).all_k == (1, 2, 4, 8, 12)
    assert load_evaluation(["num_samples=12", "k=[8,1]"]).all_k == (1, 8)


def test_k_needs_as_many_samples() -> None:
    with pytest.raises(ConfigError, match=r"k: 8 is more than num_samples=4"):
        load_evaluation(["num_samples=4", "k=[1,8]"])


def test_a_benchmark_says_how_many_samples_it_needs() -> None:
    assert load_evaluation(["benchmark=aime24"]).num_samples == 32


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("benchmark=maths500", "did you mean benchmark=math500?"),
        ("num_sample=3", "num_samples"),
        ("benchmark=jsonl", "benchmark.path=FILE.jsonl"),
        ("temperature=0", "temperature"),
        ("algorithm=dapo", "algorithm: there is no such setting"),
    ],
)
def test_faults_name_the_fix(word: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_evaluation([word])
    assert told in str(caught.value)
