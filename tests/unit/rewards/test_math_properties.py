"""Properties of the mathematics reward on many answers: nothing raises, hangs or is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sympy

from grpo_exp.rewards.answer_sources import extract_gsm8k
from grpo_exp.rewards.math_answer import score_math, score_math_batch
from grpo_exp.rewards.vanishing import is_zero, vanishes
from grpo_exp.rewards.worker_pool import WorkerPool, shared_pool

from .reward_cases import descendants, is_running, load_jsonl

#: No answer built of these may need more than its time limit, or be right by accident for the target 271828.
FRAGMENTS = [
    r"\frac", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "^", "_", "1", "23", "0", ".", ",", ";", ":",
    "x", "y", "e", "i", r"\pi", r"\sqrt", "=", "<", r"\le", r"\in", r"\cup", r"\pm", r"\text{ cm}",
    r"\text{", "%", r"\$", "$", "&", r"\\", r"\begin{pmatrix}", r"\end{pmatrix}", r"\boxed{", "</think>",
    "<think>", r"\ldots", "|", "!", "-", "+", r"\cdot", "½", "²", r"\overline", "and", "or", "~", r"\!",
    r"\,", "\u2212", "\n", "\x00", "\ud800", "\\",
]  # fmt: skip


def _random_text(chooser: random.Random) -> str:
    return "".join(chooser.choices(FRAGMENTS, k=chooser.randint(1, 14)))


def test_random_answers_never_raise_and_never_pay() -> None:
    chooser = random.Random(0)
    completions = [rf"\boxed{{{_random_text(chooser)}}}" for _ in range(400)]
    scores = score_math_batch(completions, ["271828"] * 400, prefilled=[False] * 400)
    assert [score.value for score in scores] == [0.0] * 400


def test_random_targets_never_raise() -> None:
    chooser = random.Random(1)
    for _ in range(200):
        score = score_math(r"\boxed{271828}", _random_text(chooser))
        assert score.value in {0.0, None}


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 100_000,
        "{" * 100_000,
        r"\boxed{" + "7" * 1_000_000 + "}",
        "\\" * 1_000_000,
        "</think>" * 100_000,
    ],
    ids=["boxes", "braces", "digits", "backslashes", "tags"],
)
def test_huge_texts_take_linear_time(text: str) -> None:
    started = time.thread_time()  # of this process: no checker is asked for them
    assert score_math(text, "7").value == 0.0
    assert time.thread_time() - started < 2.0


def test_points_cannot_be_aimed_at() -> None:
    """What is zero at the points of one process is not zero at those of another."""
    program = (
        "from grpo_exp.rewards import vanishing\n"
        "points = [point[0] for point in vanishing._POINTS]\n"
        "print(*points, *[-point for point in points])\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    x = sympy.Symbol("x", real=True)
    trap = sympy.prod([x - sympy.Rational(point) for point in shown.stdout.split()])
    assert not vanishes(trap)


@pytest.mark.parametrize(
    ("value", "zero"),
    [
        (sympy.sqrt(5 + 2 * sympy.sqrt(6)) - sympy.sqrt(2) - sympy.sqrt(3), True),  # (a+b)^2 = 5 + 2 ab
        (sympy.sqrt(10**60 + 1) - 10**30, False),  # about 5e-31
        (sympy.exp(-5000), False),  # about 10^-2171, beyond the digits tried first
        (sympy.sqrt(2 + sympy.Rational(1, 10**1200)) - sympy.sqrt(2), False),
    ],
)
def test_nothing_tiny_is_zero(value: sympy.Expr, zero: bool) -> None:
    assert is_zero(value) is zero


def test_hanging_answers_time_out_and_later_ones_are_right() -> None:
    towers = [
        r"\boxed{7^{7^{7^{7}}}}",
        r"\boxed{\dfrac{6^{\left(6^{\left(6^{6}\right)}\right)}}{17}}",
        r"\boxed{\binom{10^{9}}{5\cdot 10^{8}}}",
    ]
    pool = shared_pool()
    started = time.monotonic()
    scores = score_math_batch(towers, ["5", "5", "x"], prefilled=[False] * 3)
    elapsed = time.monotonic() - started
    assert [(score.value, score.reason) for score in scores[:2]] == [(0.0, "timeout")] * 2
    assert scores[2].value == 0.0
    rounds = -(-len(towers) // pool.num_workers)
    assert elapsed < rounds * pool.limit + 15  # loading the checkers included
    assert score_math(r"\boxed{\sqrt{32}}", r"4\sqrt{2}").value == 1.0


def test_works_from_any_thread() -> None:
    def is_right(number: int) -> float | None:
        return score_math(rf"\boxed{{\sqrt{{{number**2 * 7}}}}}", rf"{number}\sqrt{{7}}").value

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(is_right, range(2, 42))) == [1.0] * 40


def test_integers_start_no_process_and_are_fast() -> None:
    shared_pool().close()
    before = descendants()
    completions = [rf"<think>\nadd {i}\n</think>\nIt is \boxed{{{i % 100}}}." for i in range(256)]
    targets = [str(i * 7 % 100) for i in range(256)]
    seconds: list[float] = []
    for _ in range(5):
        started = time.thread_time()
        scores = score_math_batch(completions, targets, prefilled=[False] * 256)
        seconds.append(time.thread_time() - started)
    # i = 7 i (mod 100) where 6 i is a multiple of 100, so for the multiples of 50: 0, 50, ..., 250
    assert [i for i, score in enumerate(scores) if score.value] == [0, 50, 100, 150, 200, 250]
    assert descendants() == before
    assert min(seconds) < 0.04


def test_closing_leaves_no_process() -> None:
    before = descendants()
    pool = WorkerPool(2, limit=1.0)
    with ThreadPoolExecutor(2) as threads:
        reasons = list(threads.map(pool.ask, ["x", "x"], [r"x+7^{7^{7^{7}}}", r"\frac{2x}{2}"]))
    assert reasons == ["timeout", "match"]
    assert len(descendants() - before) == 4  # two processes, each with the fork that works
    pool.close()
    assert descendants() == before
    assert pool.ask("x", r"\frac{2x}{2}") == "match"  # usable again
    pool.close()
    assert descendants() == before


def test_checker_killed_while_idle_is_replaced_without_a_verdict() -> None:
    before = descendants()
    pool = WorkerPool(1)
    assert pool.ask("x", "x+1") == "mismatch"
    for process in descendants() - before:
        os.kill(process, signal.SIGKILL)
    assert pool.ask("x", r"\frac{2x}{2}") == "match"
    pool.close()
    assert descendants() == before


def test_killed_run_leaves_no_process() -> None:
    program = (
        "from grpo_exp.rewards.math_answer import score_math\n"
        "score_math(r'\\boxed{x}', '2x')\n"
        "print('busy', flush=True)\n"
        "from grpo_exp.rewards.worker_pool import shared_pool\n"
        "shared_pool().limit = 1000.0\n"
        "score_math(r'\\boxed{x+7^{7^{7^{7}}}}', '2x')\n"
    )
    before = descendants()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"busy\n"
        time.sleep(0.5)
        started = descendants() - before
        assert len(started) == 3
        run.kill()
    deadline = time.monotonic() + 10
    while any(map(is_running, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [process for process in started if is_running(process)]


def _is_next_different(golds: list[str], position: int) -> int:
    """Return the next row whose answer is spelled differently (`x=5` and `5` mean the same)."""
    own = golds[position].removeprefix("x=")
    following = (position + 1) % len(golds)
    while golds[following].removeprefix("x=") == own:
        following = (following + 1) % len(golds)
    return following


def _check_rows(targets: list[str], golds: list[str], positions: list[int]) -> None:
    """Assert 1.0 for each row's own gold in a box, and 0.0 for that of the next different row."""
    judged = [targets[position] for position in positions]
    own = [rf"So it is $\boxed{{{golds[position]}}}$." for position in positions]
    other = [rf"So it is $\boxed{{{golds[_is_next_different(golds, position)]}}}$." for position in positions]
    closed = [False] * len(positions)
    right = score_math_batch(own, judged, prefilled=closed)
    wrong = score_math_batch(other, judged, prefilled=closed)
    assert [(own[i], score) for i, score in enumerate(right) if score.value != 1.0] == []
    assert [(other[i], judged[i], score) for i, score in enumerate(wrong) if score.value != 0.0] == []


def test_gsm8k(shared_data: Path) -> None:
    targets = [row["answer"] for row in load_jsonl(shared_data / "gsm8k_test.jsonl")]
    golds = [target.rpartition("#### ")[2] for target in targets]
    _check_rows(targets, golds, list(range(len(golds))))


def test_math500_sample(shared_data: Path) -> None:
    golds = [row["answer"] for row in load_jsonl(shared_data / "math500_part.jsonl")]
    _check_rows(golds, golds, random.Random(0).sample(range(len(golds)), 60))


@pytest.mark.long
def test_math500(shared_data: Path) -> None:
    rows = load_jsonl(shared_data / "math500_part.jsonl")
    golds = [row["answer"] for row in rows]
    _check_rows(golds, golds, list(range(len(golds))))
    solutions = score_math_batch([row["solution"] for row in rows], golds, prefilled=[False] * len(rows))
    assert [score.value for score in solutions] == [1.0] * len(rows)


def test_gsm8k_component_on_its_own_solutions(shared_data: Path) -> None:
    """Each solution is right for itself; the next one with another number is not."""
    solutions = [row["answer"] for row in load_jsonl(shared_data / "gsm8k_test.jsonl")]
    numbers = [solution.rpartition("#### ")[2] for solution in solutions]
    other = [solutions[_is_next_different(numbers, position)] for position in range(len(solutions))]
    closed = [False] * len(solutions)
    right = score_math_batch(solutions, solutions, prefilled=closed, extract=extract_gsm8k)
    wrong = score_math_batch(other, solutions, prefilled=closed, extract=extract_gsm8k)
    assert [solutions[i] for i, score in enumerate(right) if score.value != 1.0] == []
    assert [(other[i], solutions[i]) for i, score in enumerate(wrong) if score.value != 0.0] == []
