"""Settings of the data set and of the prompts made from it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import FilledText, Int, NoneText, OptionalPath, OptionalText, Settings


class ArithmeticDataset(Settings):
    """Procedural sums and differences; train and test share no problem, whatever the seed."""

    kind: Literal["arithmetic"]
    max_operand: Annotated[Int, Field(ge=9, le=999)] = 29
    """Difficulty: operands are drawn from 0 to this. The built-in policy is primed on 0 to 29."""
    operations: tuple[Literal["+", "-"], ...] = ("+",)
    """Operations to draw from. The built-in policy is primed on sums."""
    train_size: Annotated[Int, Field(ge=1, le=100_000)] = 4000
    """Training prompts; they repeat once the problems of this difficulty are used up."""
    eval_size: Annotated[Int, Field(ge=1, le=10_000)] = 200
    """Held-out problems, all different."""
    system_prompt: OptionalText = None
    """System message before each prompt; null is none."""

    @model_validator(mode="after")
    def _check(self) -> ArithmeticDataset:
        if not self.operations:
            raise ValueError("operations: at least one of + and - is needed; use operations=[+]")
        if len(set(self.operations)) != len(self.operations):
            raise ValueError(f"operations: {list(self.operations)} names one twice; name each once")
        return self


#: Columns that every reward gets, whatever the file holds.
_RESERVED = {"prompt", "prompts", "completion", "completions", "completion_ids", "num_tokens", "target"}


class JsonlDataset(Settings):
    """Any local file with one JSON object per line, columns mapped."""

    kind: Literal["jsonl"]
    path: OptionalPath = None
    """Training file; relative to the folder the command was started in."""
    eval_path: OptionalPath = None
    """Held-out file; null takes `eval_size` rows off the training file, chosen by a hash of their text."""
    prompt_column: FilledText = "prompt"
    """Column with the prompt: text, or a list of messages with role and content."""
    target_column: Annotated[FilledText | None, NoneText] = "target"
    """Column with the right answer: text, number, or a list of accepted spellings; null where the reward knows none."""
    extra_columns: tuple[FilledText, ...] = ()
    """Further columns that the reward wants, under their own names: [tests, mode] for reward=code."""
    target_format: Literal["plain", "gsm8k", "boxed"] = "plain"
    r"""Where the answer stands in that column: all of it, after the last `####`, or in the last `\boxed{}`."""
    system_prompt: OptionalText = None
    """System message before each prompt; null is none."""
    train_size: Annotated[Annotated[Int, Field(ge=1, le=100_000_000)] | None, NoneText] = None
    """Use the first rows only; null is all."""
    eval_size: Annotated[Int, Field(ge=1, le=100_000)] = 200
    """Held-out rows at most."""

    @model_validator(mode="after")
    def _check(self) -> JsonlDataset:
        if self.path is None:
            raise ValueError("path: dataset=jsonl needs a file; add dataset.path=FILE.jsonl")
        reserved = sorted(_RESERVED & set(self.extra_columns))
        if reserved:
            raise ValueError(
                f"extra_columns: {', '.join(reserved)} means something else to rewards; rename it in the file"
            )
        return self


DatasetSettings = Annotated[ArithmeticDataset | JsonlDataset, Field(discriminator="kind")]
