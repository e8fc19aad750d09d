"""From data set settings to rows, checked against what a step needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from grpo_exp.data.arithmetic import Problem, count_problems, distinct_problems, draw_problem
from grpo_exp.data.jsonl import load_jsonl
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import DataError
from grpo_exp.rewards.target_check import check_targets
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.dataset import ArithmeticDataset, DatasetSettings
from grpo_exp.settings.reward import RewardSettings


def load_prompts(
    settings: DatasetSettings, *, seed: int, plan: BatchPlan, reward: RewardSettings | None = None
) -> PromptData:
    """Return training and held-out rows.

    Args:
        settings: The data set.
        seed: Seed of procedural data.
        plan: What a step needs.
        reward: Rows whose target it cannot judge are left out; None keeps them.

    Raises:
        DataError: The data cannot be used, are fewer than one generated batch needs, or more than 5 % of the targets
            cannot be judged.
    """
    data = _arithmetic(settings, seed) if settings.kind == "arithmetic" else load_jsonl(settings)
    if reward is not None:
        data = leave_out_unjudgeable(data, reward)
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


def leave_out_unjudgeable(data: PromptData, reward: RewardSettings) -> PromptData:
    """Return the rows whose target the reward can judge; the others are counted and listed by reason.

    Raises:
        DataError: More than 5 % of the rows would be left out.
    """
    rows = (*data.train, *data.evaluation)
    report = check_targets(reward, {"target": [row.to_dict()["target"] for row in rows]})
    if not report.unjudgeable:
        return data
    left_out = {entry.row for entry in report.unjudgeable}
    kept = [row not in left_out for row in range(len(rows))]
    reasons = {(name, reason): f"whose target {name} cannot judge ({reason})" for name, reason in report.counts}
    return PromptData(
        train=tuple(compress(data.train, kept)),
        evaluation=tuple(compress(data.evaluation, kept[len(data.train) :])),
        dropped={**data.dropped, **{text: report.counts[key] for key, text in reasons.items()}},
        dropped_targets={
            text: tuple(entry.target for entry in report.unjudgeable if (entry.component, entry.reason) == key)
            for key, text in reasons.items()
        },
    )


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
