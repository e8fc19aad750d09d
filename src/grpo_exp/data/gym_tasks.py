"""Tasks of the package reasoning_gym, made on this machine (arXiv:2505.24760)."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
from collections import Counter
from typing import Any

from grpo_exp.data.arithmetic import Split, hash_parts
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.settings.dataset import ReasoningGymDataset

#: The package takes 32 bits.
_SEEDS = 2**31
_MOST_NAMED = 8


def is_installed() -> bool:
    """Say whether the package is there, without importing it, which takes seconds."""
    return importlib.util.find_spec("reasoning_gym") is not None


def load_gym_tasks(settings: ReasoningGymDataset, seed: int) -> PromptData:
    """Return different tasks, a function of the seed and the package's version; train and test share no question.

    Raises:
        ConfigError: The package is not installed.
        DataError: There is no such task, or it does not have these options.
    """
    if not is_installed():
        raise ConfigError(
            "dataset=reasoning_gym: the package is not installed; pip install 'grpo-exp[reasoning_gym]', or choose "
            "another data set"
        )
    evaluation = _rows(settings, seed, "test")
    held_out = {row.question_key for row in evaluation}
    made = _rows(settings, seed, "train")
    train = [row for row in made if row.question_key not in held_out]
    different = {row.question_key: row for row in reversed(train)}
    kept = tuple(row for row in train if different[row.question_key] is row)
    dropped = Counter(
        {
            "that are held out, too,": len(made) - len(train),
            "that repeat an earlier prompt": len(train) - len(kept),
        }
    )
    return PromptData(kept, evaluation, +dropped)


def _rows(settings: ReasoningGymDataset, seed: int, split: Split) -> tuple[PromptRow, ...]:
    size = settings.train_size if split == "train" else settings.eval_size
    try:
        package = importlib.import_module("reasoning_gym")
        tasks = importlib.import_module("reasoning_gym.factory").DATASETS
    except ImportError as error:
        raise ConfigError(
            f"dataset=reasoning_gym: the package is there and cannot be imported ({error}); install it with all "
            "that it needs: pip install 'grpo-exp[reasoning_gym]'"
        ) from error
    if settings.task not in tasks:
        raise DataError(_unknown_task(settings.task, sorted(tasks)))
    try:
        number = hash_parts("reasoning_gym", seed, split) % _SEEDS
        made = package.create_dataset(settings.task, seed=number, size=size, **settings.options)
        entries = [made[index] for index in range(size)]
    except Exception as error:  # a task asserts what its options may be, and raises what it likes
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(
            f"dataset.task={settings.task}: cannot be made with dataset.options={settings.options} ({why}); correct "
            "the options: the package's documentation of the task lists them"
        ) from error
    return tuple(_to_row(entry, settings) for entry in entries)


def _to_row(entry: dict[str, Any], settings: ReasoningGymDataset) -> PromptRow:
    """Return a task as a row; what its scorer needs goes into the column `entry`, as plain JSON data."""
    prompt = build_prompt(str(entry["question"]), settings.system_prompt, settings.prompt_template)
    answer = entry["answer"]
    metadata = {**entry["metadata"], "source_dataset": settings.task}
    plain = json.loads(json.dumps({**entry, "metadata": metadata}, default=str))
    return PromptRow(prompt, "" if answer is None else str(answer), {"entry": plain})


def _unknown_task(task: str, tasks: list[str]) -> str:
    near = difflib.get_close_matches(task, tasks, n=3) or tasks[:_MOST_NAMED]
    return f"dataset.task={task}: reasoning_gym has no such task; it has {len(tasks)}, for example {', '.join(near)}"
