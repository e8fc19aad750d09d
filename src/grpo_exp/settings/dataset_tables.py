"""Settings of data sets that are tables: columns are mapped to prompt, target and what else a reward wants."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_exp.settings.base import FilledText, Float, Int, NoneText, OptionalPath, OptionalText, PathText
from grpo_exp.settings.dataset_preparation import PreparedDataset

#: Columns that every reward gets, whatever the table holds.
_RESERVED = {"prompt", "prompts", "completion", "completions", "completion_ids", "num_tokens", "target"}

OptionalColumn = Annotated[FilledText | None, NoneText]
OptionalDifficulty = Annotated[Annotated[Float, Field(ge=0, le=1e9)] | None, NoneText]
TargetFormat = Literal["plain", "gsm8k", "boxed"]


class TableDataset(PreparedDataset):
    """What tables have in common. A column inside another one is named with a dot: `reward_model.ground_truth`."""

    prompt_column: FilledText = "prompt"
    """Column with the prompt: text, or a list of messages with role and content."""
    target_column: OptionalColumn = "target"
    """Column with the right answer: text, number, or a list of accepted spellings; null where the reward knows none."""
    target_format: TargetFormat = "plain"
    r"""Where the answer stands in that column: all of it, after the last `####`, or in the last `\boxed{}`."""
    solution_column: OptionalColumn = None
    """Column with a worked solution, for `grpo-exp sft`; null where there is none."""
    extra_columns: tuple[FilledText, ...] = ()
    """Further columns that the reward wants, under their own names: [tests, mode] for reward=code."""
    difficulty_column: OptionalColumn = None
    """Column with a number that grows with difficulty, or a text with one in it (`Level 3`), for
    `curriculum.order=easy_to_hard`; null takes 1 minus the pass rate."""
    min_difficulty: OptionalDifficulty = None
    """Training rows below it are left out, and those whose difficulty is not known; in the unit of that column."""
    max_difficulty: OptionalDifficulty = None
    """Training rows above it are left out, and those whose difficulty is not known."""
    pass_rate_column: OptionalColumn = None
    """Column with a pass rate from 0 to 1, for `pass_rates` and the curriculum; `pass_rates.path` wins."""
    drop_duplicates: bool = False
    """Leave out rows whose prompt came before; case and blanks do not count."""
    train_size: Annotated[Annotated[Int, Field(ge=1, le=100_000_000)] | None, NoneText] = None
    """Use the first usable rows only; null is all."""
    eval_size: Annotated[Int, Field(ge=1, le=100_000)] = 200
    """Held-out rows at most."""

    @model_validator(mode="after")
    def _check_columns(self) -> TableDataset:
        bounds = [name for name in ("min_difficulty", "max_difficulty") if getattr(self, name) is not None]
        if bounds and self.difficulty_column is None:
            raise ValueError(
                f"{bounds[0]}: no column says how difficult a row is; add dataset.difficulty_column=COLUMN, or leave "
                "it out"
            )
        reserved = sorted(_RESERVED & set(self.extra_columns))
        if reserved:
            raise ValueError(
                f"extra_columns: {', '.join(reserved)} means something else to rewards; rename it in the file"
            )
        return self


class JsonlDataset(TableDataset):
    """Any local file with one JSON object per line, columns mapped."""

    kind: Literal["jsonl"]
    path: OptionalPath = None
    """Training file; relative to the folder the command was started in."""
    eval_path: OptionalPath = None
    """Held-out file; null takes `eval_size` rows off the training file, chosen by a hash of their text."""

    @model_validator(mode="after")
    def _check(self) -> JsonlDataset:
        if self.path is None:
            raise ValueError("path: dataset=jsonl needs a file; add dataset.path=FILE.jsonl")
        return self


class HubDataset(TableDataset):
    """A data set of the hub, or a copy of it on this machine, read by `datasets.load_dataset`."""

    kind: Literal["hub"]
    path: Annotated[PathText | None, NoneText] = None
    """Id on the hub; or a local file (.parquet, .jsonl, .json, .csv, .arrow) or folder (a clone of the repository, or
    what `save_to_disk` wrote) for machines without network."""
    config_name: OptionalText = None
    """Configuration of the data set, where it has several; called subset on the hub's pages."""
    revision: OptionalText = None
    """Commit of the repository on the hub; null is the newest, which may change under you."""
    split: FilledText = "train"
    """Split to train on; several are joined with a plus: `train+test`."""
    eval_path: OptionalPath = None
    """Id, file or folder of the held-out rows; null takes those of `eval_split` from `path`."""
    eval_config_name: OptionalText = None
    """Configuration of the held-out rows; null is `config_name` where they come from `path`."""
    eval_revision: OptionalText = None
    """Commit of the held-out rows; null is `revision` where they come from `path`."""
    eval_split: OptionalText = None
    """Split of the held-out rows; null takes some off the training split, chosen by a hash of their text."""
    tests_columns: tuple[FilledText, ...] = ()
    """Columns with `{"input": [text], "output": [text]}`, joined into the reward's column `tests` with `mode` stdin:
    the form of CodeContests."""
    max_tests: Annotated[Int, Field(ge=1, le=10_000)] = 32
    """Of `tests_columns`: the first tests that are kept for a row; each costs a run of the program."""

    @model_validator(mode="after")
    def _check(self) -> HubDataset:
        if self.path is None:
            raise ValueError("path: dataset=hub needs an id on the hub, or a local file or folder; add dataset.path=ID")
        if self.eval_path is not None and self.eval_split is None:
            raise ValueError(
                f"eval_split: is null and eval_path={self.eval_path} has splits; say which one holds the held-out "
                "rows, for example dataset.eval_split=test"
            )
        taken = sorted({"tests", "mode"} & set(self.extra_columns)) if self.tests_columns else []
        if taken:
            raise ValueError(
                f"extra_columns: {', '.join(taken)} would be made of tests_columns, too; leave it out, or use "
                "tests_columns=[]"
            )
        return self
