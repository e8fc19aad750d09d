"""Real rows of GSM8K and MATH go through the whole preparation: prompts, targets and counts.

They lie beside the checkout or in $GRPO_EXP_SHARED_DATA; without them the tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from architecture.checkout import CHECKOUT
from grpo_exp.data.load import load_rows
from grpo_exp.data.prompts import PromptData
from grpo_exp.settings import load

BOXED = "Please reason step by step, and put your final answer within \\boxed{}."


def shared(name: str) -> Path:
    folder = Path(os.environ.get("GRPO_EXP_SHARED_DATA", CHECKOUT.parent / "shared" / "data"))
    if not (folder / name).is_file():
        pytest.skip(f"no real rows at {folder / name}; set GRPO_EXP_SHARED_DATA to the folder that holds {name}")
    return folder / name


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def prepared(preset: str, path: Path, *words: str) -> PromptData:
    """Load a preset with a file in place of the hub; a fifth of it is held out."""
    local = [f"dataset.path={path}", "dataset.eval_path=null", "dataset.eval_split=null"]
    settings = load.to_settings(
        load.compose(["tracker=none", f"dataset={preset}", *local, "dataset.max_prompt_length=null", *words])
    )
    return load_rows(settings.dataset, seed=0, reward=settings.reward, model=settings.model)


def test_gsm8k() -> None:
    """1,319 rows: a fifth is held out, floor(1319 / 5) = 263; every target is what follows `####`, without commas."""
    path = shared("gsm8k_test.jsonl")
    data = prepared("gsm8k", path)
    assert (len(data.train), len(data.evaluation), dict(data.dropped)) == (1056, 263, {})
    golds = {row["question"]: row["answer"].split("#### ")[1].replace(",", "") for row in rows_of(path)}
    found = {row.prompt[1]["content"]: row.target for row in (*data.train, *data.evaluation)}
    assert found == golds
    assert all(row.prompt[0] == {"role": "system", "content": BOXED} for row in data.train)
    assert all(row.solution and "<<" not in row.solution and "####" not in row.solution for row in data.train)


def test_math() -> None:
    """250 rows: 50 are held out; the box of the solution is the column `answer`, which the preset does not read."""
    path = shared("math500_part.jsonl")
    data = prepared("math", path)
    assert (len(data.train), len(data.evaluation), dict(data.dropped)) == (200, 50, {})
    rows = rows_of(path)
    found = {row.prompt[1]["content"]: (row.target, row.difficulty) for row in (*data.train, *data.evaluation)}
    assert found == {row["problem"]: (row["answer"], float(row["level"])) for row in rows}


def test_held_out_benchmark_is_never_trained_on() -> None:
    """The same file on both sides leaves nothing: all 250 problems are left out, as MATH-500 is from MATH."""
    path = shared("math500_part.jsonl")
    settings = load.to_settings(
        load.compose(
            ["tracker=none", "dataset=math", f"dataset.path={path}", f"dataset.eval_path={path}", "reward=math_only",
             "dataset.max_prompt_length=null"]
        )
    )  # fmt: skip
    data = load_rows(settings.dataset, seed=0)
    assert (len(data.train), len(data.evaluation)) == (0, 250)
    assert dict(data.dropped) == {"that are held out, too,": 250}
