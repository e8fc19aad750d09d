"""Settings of data sets that are made by a program, without a file or a hub."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import FilledText, Int, OptionalPath, OptionalText, Text
from grpo_exp.settings.dataset_preparation import PreparedDataset

TrainSize = Annotated[Int, Field(ge=1, le=1_000_000)]
EvalSize = Annotated[Int, Field(ge=1, le=10_000)]


class ArithmeticDataset(PreparedDataset):
    """Procedural sums and differences; train and test share no problem, whatever the seed."""

    kind: Literal["arithmetic"]
    max_operand: Annotated[Int, Field(ge=9, le=999)] = 29
    """Difficulty: operands are drawn from 0 to this. The built-in policy is primed on 0 to 29."""
    operations: tuple[Literal["+", "-"], ...] = ("+",)
    """Operations to draw from. The built-in policy is primed on sums."""
    train_size: Annotated[Int, Field(ge=1, le=100_000)] = 4000
    """Training prompts; they repeat once the problems of this difficulty are used up."""
    eval_size: EvalSize = 200
    """Held-out problems, all different."""

    @model_validator(mode="after")
    def _check(self) -> ArithmeticDataset:
        if not self.operations:
            raise ValueError("operations: at least one of + and - is needed; use operations=[+]")
        if len(set(self.operations)) != len(self.operations):
            raise ValueError(f"operations: {list(self.operations)} names one twice; name each once")
        return self


class CountdownDataset(PreparedDataset):
    """Reach a number with some others and + - * /, each used exactly once; for reward=countdown.

    Tasks are made on this machine, or read from a table with the columns `nums` and `target`.
    """

    kind: Literal["countdown"]
    min_numbers: Annotated[Int, Field(ge=2, le=6)] = 3
    """Fewest numbers of a task."""
    max_numbers: Annotated[Int, Field(ge=2, le=6)] = 4
    """Most numbers of a task; its difficulty."""
    max_number: Annotated[Int, Field(ge=9, le=999)] = 99
    """Numbers are drawn from 1 to this."""
    max_target: Annotated[Int, Field(ge=10, le=9999)] = 100
    """Targets are from 10 to this; each can be reached."""
    train_size: TrainSize = 20_000
    """Training tasks."""
    eval_size: EvalSize = 200
    """Held-out tasks, all different; none of them is trained on, whatever the seed."""
    path: OptionalPath = None
    """Id on the hub, or a local file or folder, of a table of tasks; null makes them. The bounds above hold
    for those that are made here alone."""
    revision: OptionalText = None
    """Commit of the table on the hub; null is the newest."""
    split: FilledText = "train"
    """Split of the table; a tenth of its tasks is held out, at most `eval_size`."""

    @model_validator(mode="after")
    def _check(self) -> CountdownDataset:
        if self.min_numbers > self.max_numbers:
            raise ValueError(
                f"min_numbers: {self.min_numbers} is above max_numbers={self.max_numbers}; lower it, or raise the other"
            )
        return self


class ReasoningGymDataset(PreparedDataset):
    """Any task of the package reasoning_gym, made on this machine; for reward=reasoning_gym."""

    kind: Literal["reasoning_gym"]
    task: FilledText = "leg_counting"
    """Name of the task in the package, such as `leg_counting`, `countdown` or `chain_sum`."""
    options: dict[Text, Any] = Field(default_factory=dict)
    """Settings of the task's own, by name: `+dataset.options.max_animals=5`."""
    train_size: TrainSize = 5000
    """Training tasks; those that come again are left out."""
    eval_size: EvalSize = 200
    """Held-out tasks, made from another seed; none of them is trained on."""

    @model_validator(mode="after")
    def _check(self) -> ReasoningGymDataset:
        owned = sorted({"seed", "size"} & set(self.options))
        if owned:
            raise ValueError(
                f"options: {', '.join(owned)} is decided by the run (seed, dataset.train_size); leave it out"
            )
        return self
