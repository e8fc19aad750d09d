"""Settings of the tables of completions that a run keeps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grpo_exp.settings.base import Int, NoneText, Settings


class CompletionTables(Settings):
    """Which completions are written to `completions/` of the run folder. They change nothing that is computed."""

    every_steps: Annotated[Annotated[Int, Field(ge=1, le=1_000_000)] | None, NoneText] = 10
    """Optimizer steps between two tables of training; the first and the last step have one, too. null writes none. At
    10 a run of 1000 steps has 101 tables."""
    max_rows: Annotated[Int, Field(ge=1, le=262_144)] = 64
    """Rows of one table of training, in whole groups, at least one group. 64 are 8 groups of 8: more than a person
    reads at a time."""
    eval_max_rows: Annotated[Int, Field(ge=0, le=1_000_000)] = 4096
    """Rows of one table of the held-out evaluation, in whole groups; 0 writes none. 4096 are 1024 prompts of 4 samples,
    so that all rows of a usual evaluation can be scored again."""
    max_characters: Annotated[Int, Field(ge=100, le=10_000_000)] = 20_000
    """Characters of one text; a longer one is cut in its middle. About 5,000 tokens at four characters each, so that a
    full table of training has at most 3 MB before compression."""
