"""`grpo-exp score` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from grpo_exp.__main__ import main as command
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo, limited
from grpo_exp.evaluation.completion_table import write_table
from grpo_exp.rewards.score import Score
from grpo_exp.rundir import RunDirectory

ROWS: list[dict[str, Any]] = [
    {"prompt": "p1", "completion": r"<think>a</think>\boxed{7}", "answer": "7", "extra": {"k": [1]}},
    {"prompt": "p2", "completion": [{"role": "assistant", "content": r"\boxed{8}"}], "answer": 7},
    {"prompt": "p3", "completion": None, "answer": None},
]


@pytest.fixture
def rows_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of ROWS; the current folder is its folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def score(*words: str) -> int:
    """Run the command in this process and return its exit code."""
    with pytest.raises(SystemExit) as caught:
        command(["score", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_one_line_per_row_in_order_with_all_columns(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score("reward=math", "input=rows.jsonl", "output=out/scored.jsonl", "column.target=answer") == 0
    lines = read("out/scored.jsonl")
    assert [line["reward"] for line in lines] == [1.1, 0.0, None]
    assert [{key: line[key] for key in row} for line, row in zip(lines, ROWS, strict=True)] == ROWS
    text = capsys.readouterr().out
    assert [line.split() for line in text.splitlines() if line.startswith("correctness")][:1] == [
        ["correctness", "0.5000", "1", "1", "0", "0", "1", "0.00"]
    ]
    for reason in ("match", "mismatch", "no_target", "well_formed", "empty_completion"):
        assert reason in text


def test_parquet_is_read_and_columns_are_named(rows_file: Path) -> None:
    rows = [{"text": r"\boxed{7}", "gold": "7"}, {"text": r"\boxed{8}", "gold": "7"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "rows.parquet")
    words = ["input=rows.parquet", "output=out.jsonl", "column.completion=text", "column.target=gold"]
    assert score("reward=math_only", *words) == 0
    assert [line["reward"] for line in read("out.jsonl")] == [1.0, 0.0]


def test_change_of_the_reward_is_shown_against_an_earlier_output(
    rows_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["input=rows.jsonl", "column.target=answer"]
    assert score("reward=math_only", *words, "output=old.jsonl") == 0
    capsys.readouterr()
    exact = "+reward.components.correctness={kind: exact, source: after_reasoning}"
    assert score("reward=math_only", exact, *words, "output=new.jsonl", "--against", "old.jsonl") == 0
    text = capsys.readouterr().out
    assert "against: 3 of 3 completions are in both" in text
    assert "correctness: match -> mismatch: 1" in text  # the box is text now


def test_change_is_shown_against_a_run(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("run/completions")
    folder.mkdir(parents=True)
    old = {"components": {"correctness": {"value": 0.0, "reason": "no_box"}}}
    (folder / "held_out_after.jsonl").write_text(json.dumps({**ROWS[0], **old}) + "\n")
    words = ["input=rows.jsonl", "output=new.jsonl", "column.target=answer", "--against=run"]
    assert score("reward=math_only", *words) == 0
    text = capsys.readouterr().out
    assert "against: 1 of 3 completions are in both" in text
    assert "correctness: no_box -> match: 1" in text


def test_tables_of_a_run_are_scored_and_cut_texts_are_told(rows_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows of one table, one of them cut: both get a score, and it is said that one is of what is left."""
    scores = {"correctness": Score(0.0, "no_box")}
    whole = CompletionRow("3+4?", r"\boxed{7}", "7", scores, 0.0, 9, False, 0)
    cut = limited(replace(whole, completion=r"\boxed{7}" + "x" * 40), 30)
    path = RunDirectory(Path("run")).completion_table("train", 1)
    write_table(path, [whole, cut], TableInfo("train", 1, 2))
    assert score("reward=math_only", "input=run", "output=out.jsonl", "--against=run") == 0
    assert [line["reward"] for line in read("out.jsonl")] == [1.0, 1.0]
    text = capsys.readouterr().out
    assert (
        "note: 1 completions were cut in the middle when they were saved (trainer.completions.max_characters)" in text
    )
    assert "correctness: no_box -> match: 2" in text


def test_one_component_is_a_whole_reward(rows_file: Path) -> None:
    """L = 100, C = 20: nothing at 80, (80 - 99) / 20 = -0.95 at 99, -1 beyond 100."""
    rows = [{"completion": "a", "num_tokens": count} for count in (80, 99, 101)]
    rows_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = "reward.components={overlong: {kind: overlong, max_completion_tokens: 100, cache_tokens: 20}}"
    for typed in ([reward], [f"+{reward}"], [reward, "reward.primary=overlong"]):
        assert score(*typed, IN, OUT) == 0
        assert [line["reward"] for line in read("out.jsonl")] == [0.0, -0.95, -1.0]
        assert [list(line["components"]) for line in read("out.jsonl")] == [["overlong"]] * 3


def test_function_that_exits_does_not_end_the_command_as_done(
    rows_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("exiting_rewards_of_test.py").write_text("import sys\ndef f(**columns):\n    sys.exit(0)\n")
    mine = "reward.components={mine: {kind: python, function: 'exiting_rewards_of_test:f'}}"
    assert score(mine, IN, OUT) == 1
    assert "reward.components.mine: exiting_rewards_of_test:f raised SystemExit(0)" in capsys.readouterr().err
    assert not Path("out.jsonl").exists()


IN, OUT, TARGET = "input=rows.jsonl", "output=out.jsonl", "column.target=answer"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([IN], "output: is missing; add output=FILE"),
        ([], "Score saved completions"),
        (["inptu=rows.jsonl", OUT], "inptu=rows.jsonl: is nothing that score knows; did you mean input?"),
        (["trainer.max_steps=3", IN, OUT], "trainer.max_steps=3: is nothing that score knows"),
        (["input=", OUT], "input=: has no value; write input=VALUE"),
        ([IN, IN, OUT], "input is given twice"),
        (["reward=math", "reward=r1", IN, OUT], "reward=math reward=r1: there is one reward; leave all but one out"),
        (["reward=maths", IN, OUT], "did you mean reward=math?"),
        (["reward.primary=x", IN, OUT], "reward.primary: 'x' is not a component"),
        (["input=nothing.jsonl", OUT], "input=nothing.jsonl: cannot be read"),
        ([IN, "output=rows.jsonl"], "output=rows.jsonl: is the input, which would be lost"),
        ([IN, "output=."], "output=.: is a folder"),
        ([IN, "output=out.parquet"], "is written as JSON lines, never as parquet"),
        ([IN, "output=rows.jsonl/x.jsonl"], "output=rows.jsonl/x.jsonl: cannot be written"),
        ([IN, OUT], "no column 'target'"),
        ([IN, OUT, "column.target=gold"], "column.target=gold: no row has such a column"),
        ([IN, OUT, "column.completion=text"], "column.completion=text: row 1 has no such column"),
        ([IN, OUT, TARGET, "--against"], "--against: is given nothing"),
        ([IN, OUT, TARGET, "--against=nothing"], "--against=nothing: cannot be read"),
        ([IN, OUT, TARGET, "+reward.components.x={kind: python, function: 'nothing_x:f'}"], "there is no module"),
        (
            [IN, OUT, TARGET, "+reward.components.x={kind: overlong, max_completion_tokens: 5, cache_tokens: 1}"],
            "reward.components.x: there is no column 'completion_ids' or 'num_tokens'",
        ),
    ],
)
def test_wrong_word_is_answered_in_a_sentence(
    rows_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    before = rows_file.read_text()
    assert score(*words) == (0 if message == "Score saved completions" else 2)
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert "Traceback" not in captured.err
    assert rows_file.read_text() == before
    assert not Path("out.jsonl").exists()


def test_command_imports_nothing_heavy(rows_file: Path) -> None:
    """Scoring plain numbers from JSON lines needs neither torch nor a data set library nor algebra."""
    code = f"""
import sys
from grpo_exp.commands import score
score.main(["reward=math", "{IN}", "{OUT}", "{TARGET}"])
print(sorted({{"torch", "transformers", "datasets", "pyarrow", "sympy", "trl"}} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
