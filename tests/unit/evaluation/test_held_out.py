"""Held-out accuracy: the mean of the prompts' means, what cannot be judged left out, reasons counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.evaluation.held_out import Completion, HeldOutResult, evaluate_held_out
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score


def rows(count: int) -> list[PromptRow]:
    return [PromptRow(build_prompt(f"q{i}", None), str(i)) for i in range(count)]


def component(name: str, values: dict[str, float | None], weight: float = 1.0) -> RewardComponent:
    """Score a text by a table; what is not in it is 0."""

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        found = [values.get(text, 0.0) for text in completions]
        return [Score(v, "no_target" if v is None else "match" if v else "mismatch") for v in found]

    return RewardComponent(name, weight, scorer)


class FakeGenerate:
    """Hands out given texts per prompt, and remembers how it was called."""

    def __init__(self, sampled: list[list[str]], greedy: list[str]) -> None:
        self.sampled, self.greedy = sampled, greedy
        self.calls: list[tuple[list[Any], int, bool]] = []

    def __call__(self, prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
        self.calls.append((list(prompts), num_samples, greedy))
        groups = [[text] for text in self.greedy] if greedy else self.sampled
        return [[Completion(text, len(text), text == "cut") for text in group] for group in groups]


@pytest.fixture
def evaluate() -> Callable[..., HeldOutResult]:
    def run(sampled: list[list[str]], greedy: list[str] | None = None, **values: float | None) -> HeldOutResult:
        generate = FakeGenerate(sampled, greedy or ["right"] * len(sampled))
        table = {"right": 1.0, "half": 0.5, "unjudgeable": None, **values}
        parts = [component("correctness", table), component("format", {"right": 1.0, "wrong": 1.0})]
        return evaluate_held_out(
            rows(len(sampled)), generate, parts, primary="correctness", num_samples=len(sampled[0])
        )

    return run


def test_accuracy_is_the_mean_over_prompts_of_the_mean_over_samples(evaluate: Callable[..., HeldOutResult]) -> None:
    """Means 1/2, 1, 0: together 1/2."""
    result = evaluate([["right", "wrong"], ["right", "right"], ["wrong", "wrong"]])
    assert result.summary["accuracy"] == pytest.approx(0.5)
    assert (result.summary["num_prompts"], result.summary["num_samples"]) == (3, 2)


def test_sample_that_cannot_be_judged_is_left_out_of_its_prompt_only(evaluate: Callable[..., HeldOutResult]) -> None:
    """Prompt 1: one judged sample, right: 1. Prompt 2: 0. Mean of the prompts: 1/2.

    The mean of the three judged samples would be 1/3, and None as 0 would give 1/4.
    """
    result = evaluate([["right", "unjudgeable"], ["wrong", "wrong"]])
    assert result.summary["accuracy"] == pytest.approx(0.5)


def test_prompt_without_any_judged_sample_is_left_out(evaluate: Callable[..., HeldOutResult]) -> None:
    """Means: nothing, 1, 0: 1/2 over two prompts."""
    result = evaluate([["unjudgeable"] * 2, ["right"] * 2, ["wrong"] * 2])
    assert result.summary["accuracy"] == pytest.approx(0.5)


def test_nothing_to_judge_is_no_accuracy_rather_than_zero(evaluate: Callable[..., HeldOutResult]) -> None:
    summary = evaluate([["unjudgeable"], ["unjudgeable"]], greedy=["unjudgeable", "unjudgeable"]).summary
    assert summary["accuracy"] is None
    assert summary["accuracy_interval"] is None
    assert summary["greedy_accuracy"] is None
    assert summary["rewards"]["correctness"] is None


def test_interval_takes_the_prompts_as_independent(evaluate: Callable[..., HeldOutResult]) -> None:
    """Means 1/2, 1, 0: variance ((0)^2 + (1/2)^2 + (1/2)^2) / 2 = 1/4, standard error sqrt(1/4 / 3) = 0.2887.

    1/2 -+ 1.96 x 0.2887 = -0.066 and 1.066, cut at 0 and 1. Four prompts with means 1/2, 1, 0, 1/2: variance
    (1/2) / 3 = 1/6, standard error sqrt(1/24) = 0.2041, 1/2 -+ 0.4001.
    """
    wide = evaluate([["right", "wrong"], ["right", "right"], ["wrong", "wrong"]]).summary["accuracy_interval"]
    assert tuple(wide) == (0.0, 1.0)
    narrower = evaluate([["right", "wrong"], ["right"] * 2, ["wrong"] * 2, ["wrong", "right"]]).summary
    half = 1.959964 * math.sqrt(1 / 24)
    assert tuple(narrower["accuracy_interval"]) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)


def test_greedy_accuracy_is_of_one_completion_each(evaluate: Callable[..., HeldOutResult]) -> None:
    """3 of 4 greedy answers are right, whatever the samples are."""
    result = evaluate([["wrong"]] * 4, greedy=["right", "right", "wrong", "right"])
    assert result.summary["accuracy"] == 0.0
    assert result.summary["greedy_accuracy"] == 0.75
    low, high = result.summary["greedy_accuracy_interval"]
    # Wilson for 3 of 4: centre (3/4 + z^2/8) / (1 + z^2/4), z = 1.96: 0.6275 -+ 0.3268.
    assert (low, high) == pytest.approx((0.3006, 0.9544), abs=1e-3)


def test_reasons_of_the_judged_component_are_counted(evaluate: Callable[..., HeldOutResult]) -> None:
    result = evaluate([["right", "wrong"], ["unjudgeable", "wrong"]])
    assert result.summary["reasons"] == {"match": 1, "mismatch": 2, "no_target": 1}


def test_every_component_has_a_mean(evaluate: Callable[..., HeldOutResult]) -> None:
    """Correctness 1, 0.5, 0, 0 = 0.375; format pays right and wrong: 3 of 4."""
    result = evaluate([["right", "half"], ["wrong", "wrong"]])
    assert result.summary["rewards"] == {"correctness": pytest.approx(0.375), "format": pytest.approx(0.75)}


def test_lengths_and_truncation(evaluate: Callable[..., HeldOutResult]) -> None:
    """Texts of 5, 3, 5 and 5 letters: 4.5; one of four was cut."""
    result = evaluate([["right", "cut"], ["wrong", "wrong"]])
    assert result.summary["completion_length"] == pytest.approx(4.5)
    assert result.summary["truncated_fraction"] == pytest.approx(0.25)


def test_samples_carry_prompt_target_and_scores_in_order(evaluate: Callable[..., HeldOutResult]) -> None:
    samples = evaluate([["right", "wrong"], ["cut", "right"]]).samples
    assert [(s["prompt"][0]["content"], s["target"], s["completion"]) for s in samples] == [
        ("q0", "0", "right"),
        ("q0", "0", "wrong"),
        ("q1", "1", "cut"),
        ("q1", "1", "right"),
    ]
    assert samples[1]["components"]["correctness"] == {"value": 0.0, "reason": "mismatch"}
    assert samples[1]["components"]["format"] == {"value": 1.0, "reason": "match"}
    assert [s["truncated"] for s in samples] == [False, False, True, False]


def test_generator_gets_plain_messages_once_sampled_and_once_greedy() -> None:
    generate = FakeGenerate([["right"] * 3, ["right"] * 3], ["right", "right"])
    evaluate_held_out(rows(2), generate, [component("c", {"right": 1.0})], primary="c", num_samples=3)
    prompts = [[{"role": "user", "content": "q0"}], [{"role": "user", "content": "q1"}]]
    assert generate.calls == [(prompts, 3, False), (prompts, 1, True)]


def test_component_sees_the_target_of_each_sample() -> None:
    seen: list[Any] = []

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        seen.append(list(columns["target"]))
        return [Score(1.0, "match")] * len(completions)

    generate = FakeGenerate([["a", "b"], ["c", "d"]], ["a", "c"])
    evaluate_held_out(rows(2), generate, [RewardComponent("c", 1.0, scorer)], primary="c", num_samples=2)
    assert seen == [["0", "0", "1", "1"], ["0", "1"]]


def test_components_see_prompts_and_lengths_as_while_training() -> None:
    """What counts tokens, or asks for prompts, must not fail only when the run is evaluated."""
    seen: list[dict[str, Any]] = []

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        seen.append(dict(columns))
        return [Score(1.0, "match")] * len(completions)

    parts = [RewardComponent("correctness", 1.0, scorer)]
    evaluate_held_out(rows(1), FakeGenerate([["a", "bcd"]], ["ef"]), parts, primary="correctness", num_samples=2)
    sampled, greedy = seen
    question = [{"role": "user", "content": "q0"}]
    assert sampled == {"prompts": [question] * 2, "target": ["0", "0"], "num_tokens": [1, 3]}
    assert greedy["num_tokens"] == [2]
