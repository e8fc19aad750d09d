"""Score programs in batches."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.code.program_text import extract_program
from grpo_exp.rewards.code.runs import PASSED, Budget, UnreadableTestsError, run_tests
from grpo_exp.rewards.code.unit_tests import UNREADABLE_TESTS, read_tests
from grpo_exp.rewards.columns import Columns, read_prefilled
from grpo_exp.rewards.completion import Completion, read_completion
from grpo_exp.rewards.sandbox.build import build_sandbox, sandbox_faults
from grpo_exp.rewards.sandbox.interface import Limits, Sandbox
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward_code import CodeComponent

#: What the data set must have.
COLUMNS = ("tests", "mode")
CodeScorer = Callable[[str, Sequence[Completion], Columns], list[Score]]

_MEBI = 2**20


def build_code_scorer(settings: CodeComponent) -> CodeScorer:
    """Build the scorer of a component: name, completions and columns to one score each, in the same order.

    The columns are `tests` and `mode` (see `unit_tests`), and `prefilled` where prompts end inside the reasoning. The
    scorer can be called from any thread; it raises ConfigError for a missing column and RunError when the sandbox does
    not work.
    """
    sandbox = build_sandbox(settings.sandbox, python=settings.python)
    num_workers = settings.num_workers or _default_num_workers()

    def score(name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        rows = _rows(name, completions, columns)
        if not rows:
            return []
        with ThreadPoolExecutor(min(num_workers, len(rows)), thread_name_prefix="programs") as threads:
            return list(threads.map(lambda row: _score_row(settings, sandbox, row), rows))

    return score


def code_faults(settings: CodeComponent) -> list[str]:
    """Return what keeps the sandbox of a component from working on this machine, each with its fix."""
    return sandbox_faults(settings.sandbox, python=settings.python)


_Row = tuple[Completion, Any, Any, bool]


def _rows(name: str, completions: Sequence[Completion], columns: Columns) -> list[_Row]:
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise ConfigError(
            f"reward.components.{name}: the data set has no column {' and no column '.join(map(repr, missing))} (it "
            f"has {sorted(columns)}); kind=code runs `tests` as `mode` (stdin, call or assert) says; add them to the "
            "data set"
        )
    prefilled = read_prefilled(completions, columns)
    return [
        (completion, tests, mode, opened)
        for completion, tests, mode, opened in zip(
            completions, columns["tests"], columns["mode"], prefilled, strict=True
        )
    ]


def _score_row(settings: CodeComponent, sandbox: Sandbox, row: _Row) -> Score:
    completion, given_tests, mode, prefilled = row
    tests = read_tests(given_tests, mode)
    if isinstance(tests, Score):
        return tests
    read = read_completion(completion)
    if not read.text.strip():
        return Score(0.0, "empty_completion")
    program = extract_program(read.text, reasoning_open=prefilled and read.reasoning is None)
    if program.content is None:
        return Score(0.0, program.reason)
    budget = Budget(
        limits=_limits(settings),
        deadline=time.monotonic() + settings.total_seconds,
        stop_early=settings.scoring == "all",
    )
    try:
        reasons = run_tests(sandbox, program.content, tests, budget)
    except UnreadableTestsError:
        return UNREADABLE_TESTS
    return _to_score(reasons, fraction=settings.scoring == "fraction")


def _to_score(reasons: list[str], *, fraction: bool) -> Score:
    assert reasons, "all([]) must not pay"
    failed = [reason for reason in reasons if reason != PASSED]
    if not failed:
        return Score(1.0, PASSED)
    return Score((len(reasons) - len(failed)) / len(reasons) if fraction else 0.0, failed[0])


def _limits(settings: CodeComponent) -> Limits:
    return Limits(
        wall_seconds=settings.timeout_seconds,
        cpu_seconds=math.ceil(settings.timeout_seconds),
        memory_bytes=settings.memory_megabytes * _MEBI,
        num_processes=settings.num_processes,
        file_bytes=settings.file_megabytes * _MEBI,
        output_bytes=settings.output_megabytes * _MEBI,
    )


def _default_num_workers() -> int:
    """Return the cores of this machine, shared among the ranks on it."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // max(1, ranks))
