"""Answers to tasks of the package reasoning_gym, judged by the tasks' own scorers.

Those read what a model wrote with SymPy, `eval` and the like, so they run in the checker's processes, which can be
killed.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grpo_exp.errors import ConfigError
from grpo_exp.rewards.answer_sources import read_answer
from grpo_exp.rewards.columns import Columns, read_prefilled
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.score import Score
from grpo_exp.rewards.worker_pool import shared_pool
from grpo_exp.settings.reward_answers import ReasoningGymComponent

COLUMN = "entry"
"""Column with the task."""
MAX_CHARACTERS = 20_000
"""Longest answer that is judged."""


def score_gym(
    settings: ReasoningGymComponent, name: str, completions: Sequence[Completion], columns: Columns
) -> list[Score]:
    """Score a batch: what the task's scorer gives, 0 to 1.

    Raises:
        ConfigError: The column with the tasks is not there.
    """
    if COLUMN not in columns:
        raise ConfigError(
            f"reward.components.{name}: the data set has no column {COLUMN!r} (it has {sorted(columns)}); "
            f"kind={settings.kind} needs the task of each row; use dataset=reasoning_gym"
        )
    prefilled = read_prefilled(completions, columns)
    answers = [
        read_answer(completion, settings.source, prefilled=opened)
        for completion, opened in zip(completions, prefilled, strict=True)
    ]
    with ThreadPoolExecutor(max(1, min(len(answers), shared_pool().num_workers))) as threads:
        return list(threads.map(_score, answers, columns[COLUMN]))


def check_entry(entry: Any) -> Score:
    """Judge a task's own answer, where it has one: it must be worth 1."""
    if not _is_entry(entry):
        return Score(None, "no_target")
    if entry["answer"] is None:  # a puzzle that many answers solve
        return Score(1.0, "match")
    score = _ask(str(entry["answer"]), entry)
    return score if score.value == 1.0 else Score(None, "unparsable_target")


def is_installed() -> bool:
    """Say whether the package is there, without importing it."""
    return importlib.util.find_spec("reasoning_gym") is not None


def _score(answer: str | Score, entry: Any) -> Score:
    if not _is_entry(entry):
        return Score(None, "no_target")
    if isinstance(answer, Score):
        return answer
    return Score(0.0, "too_long") if len(answer) > MAX_CHARACTERS else _ask(answer, entry)


def _ask(answer: str, entry: Mapping[str, Any]) -> Score:
    reply = shared_pool().judge_task(answer, json.dumps(entry))
    try:
        value = min(1.0, max(0.0, float(reply)))
    except ValueError:  # timeout, crash
        return Score(0.0, reply)
    return Score(value, "match" if value == 1.0 else "partly_right" if value > 0 else "mismatch")


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, Mapping) and {"question", "answer", "metadata"} <= entry.keys()
