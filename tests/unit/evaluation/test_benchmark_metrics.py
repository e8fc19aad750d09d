"""From scored samples to pass@k, maj@k and mean@k: worked out by hand for a few prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from grpo_exp.evaluation.benchmark_metrics import PromptSamples, change, group_samples, summarise
from grpo_exp.evaluation.votes import can_vote, vote_of
from grpo_exp.settings.reward import PythonComponent
from grpo_exp.settings.reward_answers import Gsm8kComponent, LetterComponent, MathComponent, NumericComponent
from grpo_exp.settings.reward_code import CodeComponent

MATH = MathComponent(kind="math", weight=1.0)


def sample(text: str, value: float | None, **columns: Any) -> dict[str, Any]:
    scores = {"correctness": {"value": value, "reason": "match" if value else "mismatch"}}
    return {"prompt": [], "target": "7", "completion": text, "num_tokens": len(text), "truncated": text == "cut",
            "components": scores, **columns}  # fmt: skip


def boxed(*answers: str) -> list[dict[str, Any]]:
    return [sample(rf"\boxed{{{a}}}", float(a == "7")) for a in answers]


def grouped(samples: Sequence[dict[str, Any]], num_samples: int) -> list[PromptSamples]:
    return group_samples(samples, num_samples=num_samples, primary="correctness", component=MATH)


def test_metrics_are_means_over_prompts() -> None:
    """Prompt 1 has 2 right of 4 and 8 twice; prompt 2 one right of 4, one silent, and two different wrong ones.

    pass@2: 1 - C(2,2)/C(4,2) = 5/6, and 1 - C(3,2)/C(4,2) = 1/2. maj@4: a tie of two answers is won half of the time:
    1/2, and one vote each for 7, 8 and 9: 1/3.
    """
    first = boxed("7", "8", "7", "8")
    second = [*boxed("7", "8", "9"), sample("no box", 0.0)]
    summary = summarise(grouped([*first, *second], 4), ks=(1, 2, 4))
    values = {name: metric["value"] for name, metric in summary["metrics"].items()}
    assert values["mean_at_4"] == values["pass_at_1"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert values["pass_at_2"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert values["pass_at_4"] == 1.0
    assert values["maj_at_4"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert "maj_at_1" not in values  # it is pass@1
    assert summary["num_prompts"] == 2


def test_equal_answers_in_other_spellings_vote_together() -> None:
    """8 and $8$ are one answer, so 7 loses by one vote to two."""
    rows = [*boxed("7", "8"), sample(r"\boxed{$8$}", 0.0)]
    (prompt,) = grouped(rows, 3)
    assert prompt.maj_at(3) == 0.0


def test_prompts_that_cannot_be_judged_are_left_out() -> None:
    rows = [*boxed("7", "7"), sample("x", None), sample("y", None)]
    assert len(grouped(rows, 2)) == 1


def test_results_by_group_are_in_natural_order() -> None:
    rows = [sample(r"\boxed{7}", 1.0, level=10), sample(r"\boxed{8}", 0.0, level=2), sample(r"\boxed{8}", 0.0, level=2)]
    summary = summarise(grouped(rows, 1), ks=(1,), group_by=["level"])
    assert list(summary["groups"]["level"]) == ["2", "10"]
    assert summary["groups"]["level"]["2"]["num_prompts"] == 2
    assert summary["groups"]["level"]["2"]["metrics"]["pass_at_1"]["value"] == 0.0


def test_lengths_and_truncation() -> None:
    rows = [sample("aaaa", 1.0), sample("cut", 0.0)]
    summary = summarise(grouped(rows, 1), ks=(1,))
    assert summary["truncated_fraction"] == 0.5
    assert summary["completion_length"]["mean"] == 3.5
    assert (summary["completion_length"]["mean_right"], summary["completion_length"]["mean_wrong"]) == (4.0, 3.0)


def test_change_is_paired_by_prompt() -> None:
    """Differences 0.2 and 0.2: no spread between prompts, however far apart they are."""
    found = change([0.1, 0.7], [0.3, 0.9])
    assert found["value"] == pytest.approx(0.2)
    assert found["interval"] is None


def test_votes_come_from_where_the_component_looks() -> None:
    assert vote_of(r"<think>\boxed{3}</think> \boxed{1,000}", MATH) == "1000"
    assert vote_of("so it is\n#### 1,000", Gsm8kComponent(kind="gsm8k", weight=1.0)) == "1000"
    assert vote_of("<answer>B</answer>", LetterComponent(kind="letter", weight=1.0, source="answer_tag")) == "b"
    assert vote_of("3.5", NumericComponent(kind="numeric", weight=1.0, source="last_line")) == "3.5"
    assert vote_of("no answer", MATH) is None
    assert vote_of("<think>never closed", MATH) is None


def test_programs_and_functions_do_not_vote() -> None:
    assert not can_vote(CodeComponent(kind="code", weight=1.0))
    assert not can_vote(PythonComponent(kind="python", weight=1.0, function="my_rewards:brevity"))
