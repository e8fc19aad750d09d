"""Procedural problems: disjoint splits, a function of (seed, split, index), nothing shared by neighbouring seeds."""

from __future__ import annotations

import hashlib
import math

import pytest

from grpo_exp.data.arithmetic import Problem, count_problems, distinct_problems, draw_problem
from grpo_exp.data.load import load_prompts
from grpo_exp.errors import DataError
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.dataset import ArithmeticDataset

ADD = {"max_operand": 29, "operations": ("+",)}
ONE_PROMPT = BatchPlan(
    prompts_per_step=1,
    num_generations=2,
    num_processes=1,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=1,
    updates_per_batch=1,
    num_iterations=1,
)


def questions(seed: int, count: int = 400, split: str = "train", **shape: object) -> list[str]:
    return [draw_problem(seed, split, i, **(ADD | shape)).question for i in range(count)]  # type: ignore[arg-type]


def test_question_and_answer() -> None:
    assert (Problem(7, "+", 12).question, Problem(7, "+", 12).answer) == ("7+12?", 19)
    assert (Problem(7, "-", 12).question, Problem(7, "-", 12).answer) == ("7-12?", -5)


@pytest.mark.parametrize("seed", [0, 12345])
@pytest.mark.parametrize("max_operand", [9, 29, 99])
@pytest.mark.parametrize("operations", [("+",), ("-",), ("+", "-")])
def test_train_and_test_share_no_problem(seed: int, max_operand: int, operations: tuple[str, ...]) -> None:
    """Not with the same seed, and not with another one: a hash of the problem alone decides."""
    shape = {"max_operand": max_operand, "operations": operations}
    train = set(questions(seed, **shape))
    for other in (seed, seed + 1):
        assert not train & set(questions(other, split="test", **shape))


def test_operands_and_operations_stay_in_range() -> None:
    problems = [draw_problem(3, "train", i, max_operand=9, operations=("-",)) for i in range(300)]
    assert {p.operation for p in problems} == {"-"}
    operands = {p.left for p in problems} | {p.right for p in problems}
    assert operands == set(range(10))


def test_problem_depends_on_seed_split_and_index_alone() -> None:
    """Read backwards, or alone, index 17 is the same problem; its digest is worked out here."""
    forwards = questions(5, 50)
    backwards = [draw_problem(5, "train", i, **ADD).question for i in reversed(range(50))]
    assert forwards == backwards[::-1]
    for attempt in range(20):
        digest = hashlib.sha256("\x1f".join(["5", "train", "17", str(attempt)]).encode()).digest()
        number = int.from_bytes(digest[:8], "big")
        question = f"{number % 30}+{number // 30 % 30}?"
        if int.from_bytes(hashlib.sha256(f"split\x1f{question}".encode()).digest()[:8], "big") % 4:
            break
    assert forwards[17] == question


@pytest.mark.parametrize("seed", range(5))
def test_neighbouring_seeds_are_unrelated(seed: int) -> None:
    """Two draws of 4000 out of N = 675 or so training problems agree at a place with chance 1/N.

    4000 / N is about 6 places; with a standard deviation of about sqrt(6), more than 6 + 5 sqrt(6) = 18 would be a
    connection. Nor is one sequence the other one, moved by one or by a few.
    """
    available = count_problems("train", **ADD)
    expected = 4000 / available
    most = expected + 5 * math.sqrt(expected)
    first, second = questions(seed, 4000), questions(seed + 1, 4000)
    for shift in (0, 1, 2, -1):
        moved = second[shift:] + second[:shift]
        assert sum(a == b for a, b in zip(first, moved, strict=True)) <= most


def test_problems_of_a_split_are_equally_likely() -> None:
    """20 x N draws: each problem about 20 times; 20 +- 6 sqrt(20) = 27 covers all of them, none is missing."""
    available = count_problems("train", **ADD)
    counts: dict[str, int] = {}
    for question in questions(11, 20 * available):
        counts[question] = counts.get(question, 0) + 1
    assert len(counts) == available
    assert max(counts.values()) <= 20 + 6 * math.sqrt(20)


def test_a_quarter_is_held_out() -> None:
    """900 sums with operands 0 to 29; a fair hash holds 225 out, with standard deviation sqrt(900 x 3/16) = 13."""
    held_out, kept = count_problems("test", **ADD), count_problems("train", **ADD)
    assert held_out + kept == 30 * 30
    assert abs(held_out - 225) <= 4 * 13


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_held_out_problems_are_all_different(seed: int) -> None:
    found = distinct_problems(seed, "test", 200, **ADD)
    assert len({problem.question for problem in found}) == 200
    assert {problem.split for problem in found} == {"test"}


def test_two_seeds_hold_different_problems_out() -> None:
    """200 of about 225 each: the orders differ, and so does the choice."""
    first, second = (distinct_problems(seed, "test", 200, **ADD) for seed in (0, 1))
    assert first != second


def test_hash_keeps_its_parts_apart() -> None:
    """(seed 1, index 23) and (seed 12, index 3) are different problems of different sequences."""
    assert questions(1, 40)[23:33] != questions(12, 40)[3:13]


def arithmetic(**fields: object) -> ArithmeticDataset:
    return ArithmeticDataset.model_validate({"kind": "arithmetic", **fields})


def test_rows_of_a_run() -> None:
    settings = arithmetic(max_operand=29, train_size=50, eval_size=20, system_prompt="Add.")
    data = load_prompts(settings, seed=4, plan=ONE_PROMPT)
    assert (len(data.train), len(data.evaluation)) == (50, 20)
    assert not {str(row.prompt) for row in data.train} & {str(row.prompt) for row in data.evaluation}
    first = data.train[0]
    assert [message["role"] for message in first.prompt] == ["system", "user"]
    question = first.prompt[1]["content"]
    left, right = question.removesuffix("?").split("+")
    assert first.target == str(int(left) + int(right))
    assert question == draw_problem(4, "train", 0, **ADD).question


def test_fingerprint_tells_seeds_apart_and_runs_of_one_seed_not() -> None:
    settings = arithmetic(train_size=50, eval_size=20)
    prints = [load_prompts(settings, seed=seed, plan=ONE_PROMPT).fingerprint() for seed in (0, 0, 1)]
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]


def test_more_held_out_problems_than_exist_are_refused_with_their_number() -> None:
    """Operands 0 to 9: about a quarter of 100 sums are held out, so 200 cannot be."""
    held_out = count_problems("test", max_operand=9, operations=("+",))
    assert held_out < 50
    with pytest.raises(DataError, match=rf"eval_size=200: only {held_out} held-out problems .*eval_size={held_out} or"):
        load_prompts(arithmetic(max_operand=9, train_size=9, eval_size=200), seed=0, plan=ONE_PROMPT)
    data = load_prompts(arithmetic(max_operand=9, train_size=9, eval_size=held_out), seed=0, plan=ONE_PROMPT)
    assert len(data.evaluation) == held_out


@pytest.mark.parametrize("max_operand", [29, 56, 57, 99])
def test_largest_number_that_skips_the_count_exists(max_operand: int) -> None:
    """(n + 1)^2 > 16 k problems are taken to hold k of them out: true with a wide margin."""
    most = (max_operand + 1) ** 2 // 16
    assert count_problems("test", max_operand=max_operand, operations=("+",)) >= 3 * most


def test_fewer_prompts_than_a_step_needs() -> None:
    """i019: 3 prompts where one step draws 4."""
    plan = BatchPlan(
        prompts_per_step=4,
        num_generations=4,
        num_processes=1,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=1,
        updates_per_batch=1,
        num_iterations=1,
    )
    with pytest.raises(DataError, match="3 training prompts are fewer than the 4 of one step"):
        load_prompts(arithmetic(train_size=3), seed=0, plan=plan)
