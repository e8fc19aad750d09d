"""Tables of completions: written whole, read by anything, and by `grpo-exp score` as rows of its own form."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.evaluation.completion_table import info_of, write_table
from grpo_exp.evaluation.saved_completions import read_rows
from grpo_exp.rewards.score import Score

INFO = TableInfo("train", 10, 256)


def rows() -> list[CompletionRow]:
    """Two rows: one with everything, one that could not be judged."""
    full = CompletionRow(
        prompt="1+1?",
        completion="Wait, 2",
        target="2",
        scores={"correctness": Score(1.0, "match"), "length": Score(-0.5, "near_limit")},
        reward=0.5,
        length=7,
        truncated=False,
        group=3,
        advantage=1.25,
        kept=True,
        behaviours={"reflection": "Wait, 2"},
        columns={"tests": '[1, "a"]'},
    )
    bare = CompletionRow(
        prompt="?",
        completion="\ud800 \x1b[2J\U0001f600",
        target="",
        scores={"correctness": Score(None, "no_target"), "length": Score(0.0, "within_limit")},
        reward=None,
        length=24,
        truncated=True,
        group=4,
        advantage=0.0,
        kept=False,
        characters_left_out=9,
    )
    return [full, bare]


def test_columns_are_flat_and_every_value_stands_in_its_own(tmp_path: Path) -> None:
    """A component called `length` does not meet the column of that name."""
    write_table(tmp_path / "x.parquet", rows(), INFO)
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    assert table.to_pylist()[0] == {
        "step": 10, "group": 3, "kept": True, "prompt": "1+1?", "completion": "Wait, 2", "target": "2",
        "rewards/correctness": 1.0, "reasons/correctness": "match", "rewards/length": -0.5,
        "reasons/length": "near_limit", "reward": 0.5, "advantage": 1.25, "length": 7, "truncated": False,
        "characters_left_out": 0, "behaviours/self_verification": None, "behaviours/reflection": "Wait, 2",
        "behaviours/backtracking": None, "behaviours/alternatives": None, "columns/tests": '[1, "a"]',
    }  # fmt: skip
    assert info_of(table) == INFO
    assert info_of(pyarrow.table({"a": [1]})) is None


def test_rows_are_read_as_score_writes_them(tmp_path: Path) -> None:
    write_table(tmp_path / "x.parquet", rows(), INFO)
    first, second = read_rows("input", tmp_path / "x.parquet")
    assert first["components"] == {
        "correctness": {"value": 1.0, "reason": "match"}, "length": {"value": -0.5, "reason": "near_limit"}
    }  # fmt: skip
    assert (first["num_tokens"], first["tests"], first["reward"]) == (7, [1, "a"], 0.5)
    assert first["behaviours"] == {"reflection": "Wait, 2"}
    # Half a character is no text: it became a question mark; all else is as it was.
    assert second["completion"] == "? \x1b[2J\U0001f600"
    assert second["components"]["correctness"] == {"value": None, "reason": "no_target"}
    assert second["reward"] is None
    assert "tests" not in second


def test_columns_have_the_same_types_whatever_is_in_them(tmp_path: Path) -> None:
    """Files of one run can be put together; a column of which all values are missing is no exception."""
    for name, chosen in (("a", rows()), ("b", rows()[1:])):
        write_table(tmp_path / f"{name}.parquet", chosen, INFO)
    schemas = [pyarrow.parquet.read_schema(tmp_path / f"{name}.parquet") for name in ("a", "b")]
    assert [field for field in schemas[0] if field.name != "columns/tests"] == list(schemas[1])


def test_where_one_target_has_several_spellings_all_are_lists(tmp_path: Path) -> None:
    from dataclasses import replace

    write_table(tmp_path / "x.parquet", [replace(rows()[0], target=["2", "two"]), rows()[0]], INFO)
    assert [row["target"] for row in read_rows("input", tmp_path / "x.parquet")] == [["2", "two"], ["2"]]


def test_writing_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "completions" / "x.parquet"
    write_table(path, rows(), INFO)
    before = path.read_bytes()

    def fail(table: Any, stream: Any, **_: Any) -> None:
        stream.write(b"PAR1 and no more")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", fail)
    with pytest.raises(OSError, match="No space left"):
        write_table(path, rows()[:1], INFO)
    assert [entry.name for entry in path.parent.iterdir()] == ["x.parquet"]
    assert path.read_bytes() == before
