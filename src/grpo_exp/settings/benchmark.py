"""Settings of the prompts that a policy is evaluated on."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from grpo_exp.settings.base import FilledText, Int, NoneText, OptionalPath, OptionalText, Settings, Text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Benchmark(Settings):
    name: Text
    """Folder of its results and name of its curves, such as `benchmark/math500/pass_at_1`."""
    num_samples: Annotated[Int, Field(ge=1, le=4096)] = 4
    """Samples per prompt, unless `num_samples` of the evaluation says otherwise."""
    group_by: tuple[FilledText, ...] = ()
    """Columns by whose values the results are also told apart: level, subject."""

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a plain folder name; use letters, digits, dots, dashes and underscores")
        return value


class HeldOutBenchmark(_Benchmark):
    """The held-out prompts of a data set: of a run's own, or of the one that `dataset` chooses."""

    kind: Literal["held_out"]


class TableBenchmark(_Benchmark):
    """A table of problems: a local file, or a data set of the hub."""

    kind: Literal["table"]
    path: OptionalPath = None
    """A file with one JSON object a line, or the name of a data set on the hub (OWNER/NAME)."""
    config_name: OptionalText = None
    """Configuration of a hub data set; null where it has one only."""
    split: FilledText = "test"
    """Split of a hub data set."""
    revision: OptionalText = None
    """Commit of a hub data set; null is the newest, which may change."""
    prompt_column: FilledText = "problem"
    """Column with the prompt: text, or a list of messages with role and content."""
    target_column: Annotated[FilledText | None, NoneText] = "answer"
    """Column with the right answer: text, number, or a list of accepted spellings; null where the reward needs none."""
    target_format: Literal["plain", "gsm8k", "boxed"] = "plain"
    r"""Where the answer stands in that column: all of it, after the last `####`, or in the last `\boxed{}`."""
    extra_columns: tuple[FilledText, ...] = ()
    """Further columns that the reward wants, under their own names."""
    system_prompt: OptionalText = None
    """System message before each prompt; null is none. The option's default is that of the data set or run."""
    max_prompts: Annotated[Annotated[Int, Field(ge=1, le=1_000_000)] | None, NoneText] = None
    """Use the first problems only; null is all."""

    @model_validator(mode="after")
    def _check(self) -> TableBenchmark:
        if self.path is None:
            raise ValueError("path: benchmark=jsonl needs a file; add benchmark.path=FILE.jsonl")
        return self


BenchmarkSettings = Annotated[HeldOutBenchmark | TableBenchmark, Field(discriminator="kind")]
