"""From data set settings to rows, checked against what a step needs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_exp.data.arithmetic import Problem, count_problems, distinct_problems, draw_problem
from grpo_exp.data.countdown import load_countdown
from grpo_exp.data.gym_tasks import load_gym_tasks
from grpo_exp.data.hub import Tables, map_tables, open_tables
from grpo_exp.data.jsonl import load_jsonl
from grpo_exp.data.preparation import leave_out_unjudgeable, prepare_rows
from grpo_exp.data.prompt_tokens import TokenCounter, build_counter
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.data.row_cache import cached_data
from grpo_exp.errors import DataError
from grpo_exp.rewards.source_hash import source_hash
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.dataset import ArithmeticDataset, DatasetSettings, HubDataset
from grpo_exp.settings.model import ModelSettings
from grpo_exp.settings.reward import RewardSettings

__all__ = ["leave_out_unjudgeable", "load_prompts", "load_rows"]


def load_prompts(
    settings: DatasetSettings,
    *,
    seed: int,
    plan: BatchPlan,
    reward: RewardSettings | None = None,
    model: ModelSettings | None = None,
) -> PromptData:
    """Return training and held-out rows.

    Args:
        settings: The data set.
        seed: Seed of procedural data.
        plan: What a step needs.
        reward: Rows whose target it cannot judge are left out; None keeps them.
        model: Whose tokens `max_prompt_length` counts; None does not look at lengths.

    Raises:
        DataError: The data cannot be used, are fewer than one generated batch needs, or more than 5 % of the targets
            cannot be judged.
    """
    data = load_rows(settings, seed=seed, reward=reward, model=model)
    needed = plan.prompts_per_generation
    if len(data.train) < needed:
        updates = f" x {plan.updates_per_batch} updates per batch" if plan.updates_per_batch > 1 else ""
        raise DataError(
            f"dataset: {len(data.train)} training prompts are fewer than the {needed} of one step "
            f"({plan.prompts_per_step} prompts a step{updates}); use trainer.prompts_per_step="
            f"{max(1, len(data.train) // plan.updates_per_batch)} or less, or more data{_left_out(data)}"
        )
    if not data.evaluation:
        raise DataError(
            "dataset: no held-out prompts are left (a fifth of the file, at most dataset.eval_size); "
            f"give dataset.eval_path=FILE or more data{_left_out(data)}"
        )
    return data


def load_rows(
    settings: DatasetSettings,
    *,
    seed: int,
    reward: RewardSettings | None = None,
    model: ModelSettings | None = None,
) -> PromptData:
    """Return the rows of a data set that can be used, however few.

    Args:
        settings: The data set.
        seed: Seed of procedural data.
        reward: As for `load_prompts`.
        model: As for `load_prompts`.

    Raises:
        DataError: The data cannot be used.
    """
    counter = None if model is None or settings.max_prompt_length is None else build_counter(model)
    if settings.kind == "hub":
        tables = open_tables(settings)
        data = cached_data(
            _cache_key(settings, tables, counter, reward),
            lambda: prepare_rows(map_tables(tables, settings), settings, counter=counter, reward=reward),
        )
        return replace(data, commits=tables.commits())
    return prepare_rows(_source(settings, seed), settings, counter=counter, reward=reward)


def _source(settings: DatasetSettings, seed: int) -> PromptData:
    match settings.kind:
        case "arithmetic":
            return _arithmetic(settings, seed)
        case "countdown":
            return load_countdown(settings, seed)
        case "reasoning_gym":
            return load_gym_tasks(settings, seed)
        case "jsonl":
            return load_jsonl(settings)
        case "hub":
            return map_tables(open_tables(settings), settings)


def _cache_key(
    settings: HubDataset, tables: Tables, counter: TokenCounter | None, reward: RewardSettings | None
) -> dict[str, Any]:
    """Return all that prepared rows depend on, besides the code that prepares them."""
    tables_key = [table.fingerprint for table in (tables.train, tables.evaluation) if table is not None]
    files = [*settings.exclude, *([settings.pass_rates.path] if settings.pass_rates.path is not None else [])]
    judges = None if reward is None else [reward.model_dump(mode="json", exclude={"engine"}), source_hash(reward)]
    # By the tables' fingerprints, or by nobody here.
    decided_elsewhere = {"path", "eval_path", "revision", "eval_revision", "name", "curriculum"}
    return {
        "tables": tables_key,
        "settings": settings.model_dump(mode="json", exclude=decided_elsewhere),
        "files": {name: _content_hash(Path(name)) for name in files},
        "tokenizer": None if counter is None else counter.identity,
        "reward": judges,
    }


def _content_hash(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _left_out(data: PromptData) -> str:
    listed = ", ".join(f"{count} {reason.rstrip(',')}" for reason, count in data.dropped.items())
    return f"; left out were {listed}" if listed else ""


def _arithmetic(settings: ArithmeticDataset, seed: int) -> PromptData:
    _check_size(settings)
    shape = {"max_operand": settings.max_operand, "operations": settings.operations}
    train = [draw_problem(seed, "train", index, **shape) for index in range(settings.train_size)]
    evaluation = distinct_problems(seed, "test", settings.eval_size, **shape)
    return PromptData(_rows(train, settings), _rows(evaluation, settings))


def _rows(problems: Sequence[Problem], settings: ArithmeticDataset) -> tuple[PromptRow, ...]:
    return tuple(
        PromptRow(
            build_prompt(problem.question, settings.system_prompt, settings.prompt_template),
            str(problem.answer),
            solution=f"{problem.left}{problem.operation}{problem.right}={problem.answer}",
            difficulty=float(problem.left + problem.right),
        )
        for problem in problems
    )


def _check_size(settings: ArithmeticDataset) -> None:
    if (settings.max_operand + 1) ** 2 > 16 * settings.eval_size:
        return  # a quarter is held out, so there are four times as many as asked for: no need to count them
    available = count_problems("test", max_operand=settings.max_operand, operations=settings.operations)
    if settings.eval_size > available:
        raise DataError(
            f"dataset.eval_size={settings.eval_size}: only {available} held-out problems exist for "
            f"max_operand={settings.max_operand} and operations={list(settings.operations)}; use "
            f"dataset.eval_size={available} or a larger dataset.max_operand"
        )
