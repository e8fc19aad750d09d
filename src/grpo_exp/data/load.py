"""From data set settings to rows, checked against what a step needs."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.data.arithmetic import Problem, count_problems, distinct_problems, draw_problem
from grpo_exp.data.jsonl import load_jsonl
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.dataset import ArithmeticDataset, DatasetSettings


def load_prompts(settings: DatasetSettings, *, seed: int, plan: BatchPlan) -> PromptData:
    """Return training and held-out rows.

    Raises:
        DataError: The data cannot be used, or are fewer than one generated batch needs.
    """
    data = _arithmetic(settings, seed) if settings.kind == "arithmetic" else load_jsonl(settings)
    needed = plan.prompts_per_generation
    if len(data.train) < needed:
        updates = f" x {plan.updates_per_batch} updates per batch" if plan.updates_per_batch > 1 else ""
        raise DataError(
            f"dataset: {len(data.train)} training prompts are fewer than the {needed} of one step "
            f"({plan.prompts_per_step} prompts a step{updates}); use trainer.prompts_per_step="
            f"{max(1, len(data.train) // plan.updates_per_batch)} or less, or more data"
        )
    if not data.evaluation:
        raise DataError(
            "dataset: no held-out prompts are left (a fifth of the file, at most dataset.eval_size); "
            "give dataset.eval_path=FILE or more data"
        )
    return data


def _arithmetic(settings: ArithmeticDataset, seed: int) -> PromptData:
    _check_size(settings)
    shape = {"max_operand": settings.max_operand, "operations": settings.operations}
    train = [draw_problem(seed, "train", index, **shape) for index in range(settings.train_size)]
    evaluation = distinct_problems(seed, "test", settings.eval_size, **shape)
    return PromptData(_rows(train, settings.system_prompt), _rows(evaluation, settings.system_prompt))


def _rows(problems: Sequence[Problem], system_prompt: str | None) -> tuple[PromptRow, ...]:
    return tuple(PromptRow(build_prompt(p.question, system_prompt), str(p.answer)) for p in problems)


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
