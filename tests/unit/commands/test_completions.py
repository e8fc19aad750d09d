"""`grpo-exp completions`: the right rows, a readable form, and answers to everything that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from grpo_exp.commands import completions
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.evaluation.completion_table import write_table
from grpo_exp.rewards.score import Score
from grpo_exp.rundir import RunDirectory, write_json


def row(place: int) -> CompletionRow:
    """Completion c0 to c7 of groups of 4: the reward is the number, format falls; every other one is right."""
    is_right = place % 2 == 1
    return CompletionRow(
        prompt=f"question {place // 4}",
        completion=f"c{place}\nsecond line" if place else "c0 \x1b[2J [bold]",
        target="7",
        scores={
            "correctness": Score(None if place == 5 else float(is_right), "match" if is_right else "mismatch"),
            "format": Score(1 - place / 10, "some_tags"),
        },
        reward=None if place == 5 else float(place),
        length=10 + place,
        truncated=place == 7,
        group=place // 4,
        advantage=0.5,
        kept=place < 4,
        behaviours={"reflection": "wait, c2"} if place == 2 else {},
    )


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with tables of steps 1 and 10, and of the evaluation before training."""
    monkeypatch.setenv("COLUMNS", "200")
    directory = RunDirectory(tmp_path / "outputs" / "name" / "abc-s0")
    directory.log_root.mkdir(parents=True)
    write_json(directory.config_json, {})
    rows = [row(place) for place in range(8)]
    write_table(directory.completion_table("train", 1), rows[:4], TableInfo("train", 1, 8))
    write_table(directory.completion_table("train", 10), rows, TableInfo("train", 10, 8))
    write_table(directory.completion_table("eval", 0), rows[:4], TableInfo("eval", 0, 4))
    return directory.path


@pytest.fixture
def printed(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(run_folder, capsys)


class Printed:
    """Calls the command and returns what it prints."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> str:
        assert completions.main([str(self._folder), *words]) == 0
        return self._capsys.readouterr().out

    def names(self, *words: str) -> list[str]:
        """Return the completions that `--json` gives, by their first word."""
        return [json.loads(line)["completion"].split()[0] for line in self(*words, "--json").splitlines()]


def test_summary_counts_what_is_in_the_newest_table(printed: Printed) -> None:
    """8 rows with lengths 10 to 17: mean 13.5; rewards 0 to 7 without 5: 23 / 7 = 3.286; 4 right of 8."""
    lines = printed().splitlines()
    assert lines[0] == "train_000010.parquet: 8 completions of 2 prompts, 1 of them replaced by dynamic sampling"
    assert lines[1] == "reward mean 3.286 over these; 1 cannot be judged"
    assert lines[2] == "length 10 to 17 tokens, mean 13.5; 1 of 8 truncated (12.5%)"
    assert lines[3] == "behaviours self_verification 0.0%, reflection 12.5%, backtracking 0.0%, alternatives 0.0%"
    counts = [line.split() for line in lines[4:8]]
    assert counts == [
        ["component", "reason", "rows", "share"],
        ["correctness", "mismatch", "4", "50.0%"],
        ["correctness", "match", "4", "50.0%"],
        ["format", "some_tags", "8", "100.0%"],
    ]
    assert "5 of 8 completions" in lines[-1]


def test_a_completion_is_shown_with_all_that_is_known_of_it(printed: Printed) -> None:
    text = printed("--group", "0")
    assert "group 0  reward 2.000  advantage +0.500  12 tokens\n" in text
    assert "correctness 0.000 (mismatch)  format 0.800 (some_tags)\n" in text
    assert "reflection: wait, c2\nprompt\n  question 0\ntarget\n  7\ncompletion\n  c2\n  second line\n" in text
    assert text.splitlines()[-1] == "4 of 8 completions"


def test_what_a_policy_wrote_moves_no_cursor_and_is_no_markup(printed: Printed) -> None:
    text = printed("--group=0")
    assert "c0 \\x1b[2J [bold]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [f"c{place}" for place in range(8)]),
        (["--worst", "2"], ["c0", "c1"]),
        (["--best", "2"], ["c7", "c6"]),
        (["--worst=1", "--best=1"], ["c0", "c7"]),
        (["--worst", "2", "--component", "format"], ["c7", "c6"]),
        (["--best", "8"], ["c7", "c6", "c4", "c3", "c2", "c1", "c0"]),  # c5 has no reward
        (["--reason", "match"], ["c1", "c3", "c5", "c7"]),
        (["--reason", "match", "--best", "1"], ["c7"]),
        (["--group", "1"], ["c4", "c5", "c6", "c7"]),
        (["--group", "1", "--reason", "mismatch"], ["c4", "c6"]),
        (["--step", "1"], ["c0", "c1", "c2", "c3"]),
        (["--step", "last", "--eval"], ["c0", "c1", "c2", "c3"]),
    ],
)
def test_rows_are_those_that_were_asked_for(words: list[str], expected: list[str], printed: Printed) -> None:
    assert printed.names(*words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "2"], r"--step=2: there is no such table; there are those of steps 1, 10, and `last`"),
        (["--step", "x"], r"--step=x: there is no such table"),
        (["--component", "form"], r"--component=form: the reward has none of this name; it has correctness, format"),
        (["--reason", "timeout"], r"--reason=timeout: no completion got this reason; there are match, mismatch, some"),
        (["--reason", "match", "--component", "format"], r"--reason=match: no completion .* there are some_tags"),
        (["--group", "9"], r"--group=9: no completion is of this group; there are 0, 1"),
        (["--worst", "0"], r"--worst=0: must be a whole number from 1 on; for example --worst 3"),
        (["--best", "few"], r"--best=few: must be a whole number"),
        (["--best"], r"--best: is given nothing; write --best VALUE"),
        (["--bset", "1"], r"--bset: is nothing that completions knows; did you mean --best"),
        (["elsewhere"], r"elsewhere: a second folder"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(words: list[str], message: str, printed: Printed) -> None:
    with pytest.raises(ConfigError, match=message):
        printed(*words)


def test_a_folder_above_the_only_run_will_do(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert completions.main([str(run_folder.parents[1])]) == 0
    assert "8 completions of 2 prompts" in capsys.readouterr().out


def test_run_without_tables_says_why_and_what_else_there_is(run_folder: Path) -> None:
    folder = run_folder / "completions"
    for path in folder.glob("train_*"):
        path.unlink()
    with pytest.raises(ConfigError, match="no completions of training; ask with --eval: there are tables of steps 0"):
        completions.main([str(run_folder)])
    (folder / "eval_000000.parquet").unlink()
    with pytest.raises(ConfigError, match=r"none was written yet, or trainer\.completions\.every_steps=null"):
        completions.main([str(run_folder)])
    (folder / "held_out_after.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"is of an older form .held_out_after\.jsonl in completions/.; read these"):
        completions.main([str(run_folder), "--eval"])


def test_files_that_are_no_tables_of_a_run_are_passed_or_named(run_folder: Path) -> None:
    """A copy that somebody made beside a table, a table of other columns, and text that is damaged."""
    folder = run_folder / "completions"
    path = folder / "train_000010.parquet"
    (folder / "train_000010 (copy).parquet").write_bytes(path.read_bytes())
    assert completions.main([str(run_folder), "--worst", "1"]) == 0
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(ConfigError, match=r"train_000010.parquet: is no table of completions"):
        completions.main([str(run_folder)])
    text = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, *map(pyarrow.py_buffer, (bytes([0] * 4 + [1, 0, 0, 0]), b"\xff"))]
    )
    pyarrow.parquet.write_table(pyarrow.table({"completion": text}), path)
    with pytest.raises(DataError, match="is no readable parquet file"):
        completions.main([str(run_folder)])


def test_command_takes_a_second_and_no_torch(run_folder: Path) -> None:
    """In a process of its own; the clock of the processor, since others may use the machine."""
    code = (
        "import sys, grpo_exp.__main__ as m\n"
        "heavy = {'torch', 'transformers', 'trl', 'mlflow', 'wandb', 'datasets'}\n"
        "try:\n    m.main(['completions', sys.argv[1], '--worst', '1'])\n"
        "finally:\n    print(sorted(heavy & set(sys.modules)))"
    )
    before = os.times()
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, str(run_folder)], capture_output=True, text=True, timeout=60)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert after.children_user - before.children_user < 2, f"{time.perf_counter() - started:.1f} s"
