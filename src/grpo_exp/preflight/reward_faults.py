"""What keeps a reward from scoring: functions that are not there, no sandbox, columns that the data do not have."""

from __future__ import annotations

from grpo_exp.data.prompts import PromptData
from grpo_exp.rewards.code.scorer import COLUMNS, code_faults
from grpo_exp.rewards.components import function_faults
from grpo_exp.settings.reward import CodeComponent, CountdownComponent, ReasoningGymComponent, RewardSettings

#: Kind of component -> the columns besides the target that it judges by.
_TASK_COLUMNS: dict[type, tuple[str, ...]] = {CountdownComponent: ("nums",), ReasoningGymComponent: ("entry",)}


def reward_faults(settings: RewardSettings) -> list[str]:
    """Look for functions of the user's, and start one program in the sandbox where programs are judged."""
    sandboxes = [
        f"reward.components.{name}.sandbox={component.sandbox}: {fault}"
        for name, component in settings.components.items()
        if isinstance(component, CodeComponent)
        for fault in code_faults(component)
    ]
    return [*function_faults(settings), *sandboxes]


def column_faults(settings: RewardSettings, data: PromptData) -> list[str]:
    """Look whether the rows have the columns that programs and tasks are judged by."""
    missing = [column for column in COLUMNS if column not in data.train[0].columns]
    task_faults = [
        f"reward.components.{name}: kind={component.kind} needs the column {column}, and the data set has none; use "
        f"dataset={component.kind}, or dataset.extra_columns=[{column}]"
        for name, component in settings.components.items()
        for column in _TASK_COLUMNS.get(type(component), ())
        if column not in data.train[0].columns
    ]
    return [*task_faults, *_code_column_faults(settings, missing)]


def _code_column_faults(settings: RewardSettings, missing: list[str]) -> list[str]:
    return [
        f"reward.components.{name}: kind=code runs the unit tests of the columns {' and '.join(COLUMNS)}, and the data "
        f"set has no {' and no '.join(missing)}; use dataset=jsonl with dataset.extra_columns=[{','.join(COLUMNS)}]"
        for name, component in settings.components.items()
        if isinstance(component, CodeComponent) and missing
    ]
