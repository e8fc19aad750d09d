"""Targets judged against themselves before training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.errors import DataError
from grpo_exp.rewards.target_check import TargetReport, check_targets
from grpo_exp.rewards.worker_pool import shared_pool
from grpo_exp.settings.reward import RewardSettings

from .reward_cases import descendants, load_jsonl


def check(targets: list[Any], **components: Any) -> TargetReport:
    fields = {"components": components, "primary": next(iter(components))}
    return check_targets(RewardSettings.model_validate(fields), {"target": targets})


MATH = {"kind": "math"}


def test_targets_that_can_be_judged_are_all_kept() -> None:
    report = check(["7", 7, r"\frac{1}{2}", r"x+\sqrt{2}", ["a", "b"]], correctness=MATH)
    assert (report.num_rows, report.unjudgeable) == (5, ())


def test_targets_that_cannot_are_listed_with_their_reason() -> None:
    """2 of 40 rows are 5 %, which is still allowed."""
    report = check([*["7"] * 20, None, *["8"] * 18, "2x+"], correctness=MATH)
    assert [(entry.row, entry.component, entry.reason, entry.target) for entry in report.unjudgeable] == [
        (20, "correctness", "no_target", None),
        (39, "correctness", "unparsable_target", "2x+"),
    ]
    assert report.counts == {("correctness", "no_target"): 1, ("correctness", "unparsable_target"): 1}


def test_more_than_one_in_twenty_is_refused() -> None:
    """3 of 40 are 7.5 %."""
    with pytest.raises(
        DataError, match=r"3 of 40 targets cannot be judged: 3 unparsable_target \(correctness\).*'2x\+'"
    ):
        check([*["7"] * 37, "2x+", "2x+", "2x+"], correctness=MATH)


@pytest.mark.parametrize(
    ("component", "good", "bad", "reason"),
    [
        ({"kind": "gsm8k"}, "so\n#### 5", " ", "no_target"),
        ({"kind": "letter"}, "B", "Paris", "unparsable_target"),
        ({"kind": "exact"}, "Paris", "", "no_target"),
        ({"kind": "numeric"}, "5", "five", "unparsable_target"),
        ({"kind": "regex", "pattern": "(?P<answer>.*)"}, "x", None, "no_target"),
    ],
)
def test_each_kind_that_knows_a_target_judges_it(component: dict[str, Any], good: Any, bad: Any, reason: str) -> None:
    report = check([*[good] * 19, bad], c=component)
    assert [(entry.row, entry.reason) for entry in report.unjudgeable] == [(19, reason)]


def test_kinds_without_a_target_ask_for_nothing() -> None:
    for component in ({"kind": "think_format"}, {"kind": "text_quality"}, {"kind": "regex", "pattern": "x"}):
        assert check([None] * 5, c=component).unjudgeable == ()


def test_row_is_left_out_once_however_many_components_fail() -> None:
    report = check([*["5"] * 19, ""], first=MATH, second={"kind": "numeric"})
    assert [entry.component for entry in report.unjudgeable] == ["first"]


def test_plain_numbers_start_no_process_and_take_no_time() -> None:
    shared_pool().close()
    before = descendants()
    started = time.thread_time()
    assert check([str(number % 60) for number in range(4200)], correctness=MATH).unjudgeable == ()
    assert time.thread_time() - started < 0.3
    assert descendants() == before


def test_real_data_sets_can_be_judged_whole(shared_data: Path) -> None:
    solutions = [row["answer"] for row in load_jsonl(shared_data / "gsm8k_test.jsonl")]
    assert check(solutions, correctness={"kind": "gsm8k"}).unjudgeable == ()
    assert check(solutions, correctness=MATH).unjudgeable == ()


@pytest.mark.long
def test_math500_can_be_judged_whole(shared_data: Path) -> None:
    answers = [row["answer"] for row in load_jsonl(shared_data / "math500_part.jsonl")]
    assert check(answers, correctness=MATH).unjudgeable == ()
