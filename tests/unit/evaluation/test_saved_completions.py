"""Files with completions: read whole, refused with a reason, written so that any reader takes them."""

from __future__ import annotations

import datetime
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from grpo_exp.errors import DataError
from grpo_exp.evaluation.saved_completions import (
    ColumnNames,
    check_writable,
    read_rows,
    to_columns,
    to_line,
    write_rows,
)

ROWS = [
    {"completion": "a", "target": 1, "tags": ["x"]},
    {"completion": [{"role": "assistant", "content": "b"}], "target": None, "tags": []},
]


def test_json_lines_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    plain = [{"completion": "a", "target": 1, "tags": ["x"]}, {"completion": "b", "target": None, "tags": []}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    # told apart by what they hold, not by their names
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(plain), tmp_path / "rows.data")
    assert read_rows("input", tmp_path / "rows.jsonl") == plain
    assert read_rows("input", tmp_path / "rows.data") == plain


def test_messages_survive_parquet(tmp_path: Path) -> None:
    rows = [{"completion": [{"role": "assistant", "content": "b"}]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert read_rows("input", tmp_path / "rows.parquet") == rows


def test_folder_of_a_run_gives_all_its_completions_in_the_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    folder.mkdir()
    (folder / "held_out_after.jsonl").write_text('{"completion": "1"}\n')
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"completion": "2"}]), folder / "step_1.parquet")
    (folder / "notes.txt").write_text("not a completion")
    assert [row["completion"] for row in read_rows("input", tmp_path)] == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no rows"),
        (b'{"completion": "a"}\n\n{"completion": "b"}\n', "line 2 is empty; every line of the output stands for"),
        (b'{"completion": "a"}\n{oops\n', "line 2 is not JSON"),
        (b"[1]\n", "line 1 is a list, not an object"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"PAR1 and no more", "is no readable parquet file"),
    ],
)
def test_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"input={path}: {message}"):
        read_rows("input", path)


def test_blank_line_at_the_end_stands_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"completion": "a"}\n\n')
    assert len(read_rows("input", tmp_path / "rows")) == 1


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read .No such file or directory.; give an existing file"):
        read_rows("input", tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="is a folder without completions"):
        read_rows("input", tmp_path)


# ------------------------------------------------------------------------------------------ columns


def test_columns_are_handed_over_by_the_names_that_components_know() -> None:
    rows = [
        {"prompt": "p", "text": "a", "gold": "1", "num_tokens": 3, "reward": 0.5, "components": {}},
        {"prompt": "q", "text": "b", "gold": "2", "prefilled": True},
    ]
    completions, columns = to_columns(rows, ColumnNames("text", "gold"))
    assert completions == ["a", "b"]
    assert columns == {
        "prompts": ["p", "q"], "gold": ["1", "2"], "target": ["1", "2"], "num_tokens": [3, None],
        "prefilled": [None, True],
    }  # fmt: skip


def test_row_without_completion_is_named() -> None:
    with pytest.raises(DataError, match=r"row 2 has no such column .it has text.*column\.completion=NAME"):
        to_columns([{"completion": "a"}, {"text": "b"}], ColumnNames())


@pytest.mark.parametrize(
    ("completion", "message"),
    [
        (5, "holds '5', of type int; a completion is text, a list of messages"),
        (0.5, "holds '0.5', of type float"),
        (True, "holds 'True', of type bool"),
        ({"role": "assistant", "content": "a"}, "of type dict"),
        (["a"], "a message is a str"),
        ([{"role": "assistant", "content": 5}], "the content of a message is a int"),
    ],
)
def test_completion_that_is_none_is_named_with_file_row_and_column(completion: Any, message: str) -> None:
    rows = [{"text": "a"}, {"text": None}, {"text": completion}]
    with pytest.raises(DataError, match=rf"^input=x\.jsonl: row 3, column 'text'.*{message}"):
        to_columns(rows, ColumnNames("text"), source="input=x.jsonl")


@pytest.mark.parametrize("value", ["false", "true", 0, 1, [True]])
def test_prefilled_is_a_boolean(value: Any) -> None:
    """The text `false` is true for Python."""
    rows = [{"completion": "a", "prefilled": True}, {"completion": "a"}, {"completion": "a", "prefilled": value}]
    with pytest.raises(DataError, match=rf"prefilled: row 3 holds {re.escape(repr(value))}; .*; write one of these"):
        to_columns(rows, ColumnNames())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"completion,target\na,1\n", "is a CSV file by its name, and its first line is no JSON"),
        ("rows.parquet", b"PAR\n", "is a parquet file by its name, and its first line is no JSON"),
        ("rows.parquet", b"\xff\xfe", "is a parquet file by its name, not JSON lines; convert it"),
        ("rows.jsonl", b"completion,target\n", "line 1 is not JSON"),
    ],
)
def test_file_of_another_format_is_called_by_it(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_rows("input", tmp_path / name)


def test_json_lines_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('{"completion": "a"}\n')
    assert read_rows("input", tmp_path / "rows.csv") == [{"completion": "a"}]


def test_target_column_of_a_name_that_no_row_has_is_refused_but_none_is_fine() -> None:
    with pytest.raises(DataError, match=r"column\.target=gold: no row has such a column .there are completion"):
        to_columns([{"completion": "a"}], ColumnNames(target="gold"))
    assert to_columns([{"completion": "a"}], ColumnNames())[1] == {}


# ------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, None),
        ([1.5, -math.inf, {"a": math.inf}], [1.5, None, {"a": None}]),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ("\ud800", "\ud800"),
        ("a\u2028b\n", "a\u2028b\n"),
    ],
)
def test_line_is_json_for_every_reader(value: Any, written: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    line = to_line({"x": value})
    assert line.count("\n") == 1
    assert json.loads(line, parse_constant=refuse) == {"x": written}


def test_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    check_writable(path)
    assert list(path.parent.iterdir()) == []
    write_rows(path, ROWS)
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
    assert list(path.parent.iterdir()) == [path]


def test_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"output=.* cannot be written .*; choose another file"):
        check_writable(tmp_path / "file" / "out.jsonl")
