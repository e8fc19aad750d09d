"""Tables of problems: columns, formats, what is left out, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_exp.data.benchmark import load_benchmark
from grpo_exp.errors import DataError
from grpo_exp.settings.benchmark import HeldOutBenchmark, TableBenchmark
from grpo_exp.settings.dataset import ArithmeticDataset
from grpo_exp.settings.reward import RewardSettings

REWARD = RewardSettings.model_validate({"components": {"correctness": {"kind": "math", "weight": 1.0}}})
ARITHMETIC = ArithmeticDataset(kind="arithmetic", eval_size=7)


def table(path: Path, rows: list[dict[str, Any]], **changes: Any) -> TableBenchmark:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return TableBenchmark(kind="table", name="mine", path=str(path), **changes)


def load(settings: Any) -> Any:
    return load_benchmark(settings, ARITHMETIC, seed=0, reward=REWARD)


def test_rows_keep_their_order_and_the_columns_of_groups(tmp_path: Path) -> None:
    rows = [{"problem": "1+1?", "answer": "2", "level": 3}, {"problem": "2+2?", "answer": 4, "level": 1}]
    found = load(table(tmp_path / "b.jsonl", rows, group_by=["level"], system_prompt="Be brief."))
    assert [row.target for row in found.rows] == ["2", "4"]
    assert [row.columns for row in found.rows] == [{"level": 3}, {"level": 1}]
    assert [message["role"] for message in found.rows[0].prompt] == ["system", "user"]


def test_whole_numbers_that_a_table_holds_as_floats_are_whole(tmp_path: Path) -> None:
    (row,) = load(table(tmp_path / "b.jsonl", [{"problem": "AIME", "answer": 204.0}])).rows
    assert row.target == "204"


@pytest.mark.parametrize(
    ("form", "text", "target"),
    [("gsm8k", "5 + 7 = 12\n#### 1,012", "1012"), ("boxed", r"so $\boxed{\frac12}$", r"\frac12"), ("plain", "x", "x")],
)
def test_target_formats(tmp_path: Path, form: str, text: str, target: str) -> None:
    (row,) = load(table(tmp_path / "b.jsonl", [{"problem": "p", "answer": text}], target_format=form)).rows
    assert row.target == target


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    """Three are none: empty, blank, and a conversation in which nobody asks; one holds half of an emoji."""
    rows = [{"problem": "p", "answer": "1"}, {"problem": "", "answer": "1"}, {"problem": "q", "answer": None},
            {"problem": "  ", "answer": "1"}, {"problem": [{"role": "system", "content": "Add."}], "answer": "1"},
            {"problem": "\ud83d", "answer": "1"}]  # fmt: skip
    found = load(table(tmp_path / "b.jsonl", rows))
    assert found.dropped == {"without a prompt": 3, "without a target": 1, "with text that is no Unicode": 1}


def test_columns_inside_others_are_read(tmp_path: Path) -> None:
    rows = [{"problem": "p", "gold": {"answer": "1"}, "about": {"level": 2}}]
    settings = table(tmp_path / "b.jsonl", rows, target_column="gold.answer", group_by=["about.level"])
    (row,) = load(settings).rows
    assert (row.target, row.columns) == ("1", {"about.level": 2})


def test_a_benchmark_with_many_targets_that_cannot_be_judged_is_not_refused(tmp_path: Path) -> None:
    """Training data are from 5 % on; a benchmark is as it is, and says how many were left out."""
    rows = [{"problem": "p", "answer": "1"}, {"problem": "q", "answer": r"\frac{1}{"}]
    found = load(table(tmp_path / "b.jsonl", rows))
    assert len(found.rows) == 1
    (count,) = [count for reason, count in found.dropped.items() if "cannot judge" in reason]
    assert count == 1


def test_missing_columns_are_told_together(tmp_path: Path) -> None:
    settings = table(tmp_path / "b.jsonl", [{"question": "p", "answer": "1"}], group_by=["level"])
    with pytest.raises(DataError) as caught:
        load(settings)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "benchmark.prompt_column=problem", "benchmark.group_by=level"
    ]  # fmt: skip
    assert "its columns are answer, question" in str(caught.value)


def test_first_problems_only(tmp_path: Path) -> None:
    rows = [{"problem": f"{i}?", "answer": i} for i in range(5)]
    assert len(load(table(tmp_path / "b.jsonl", rows, max_prompts=3)).rows) == 3


def test_held_out_rows_are_those_of_the_data_set() -> None:
    found = load(HeldOutBenchmark(kind="held_out", name="held_out"))
    assert len(found.rows) == 7
    with pytest.raises(DataError, match=r"benchmark.group_by=\[level\]: no such column"):
        load(HeldOutBenchmark(kind="held_out", name="held_out", group_by=("level",)))


def test_a_name_of_the_hub_is_read_with_its_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading itself is the library's; here is what it is asked for."""
    asked: dict[str, Any] = {}

    def load_dataset(path: str, **options: Any) -> list[dict[str, Any]]:
        asked.update(path=path, **options)
        return [{"problem": "p", "answer": "1"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    settings = TableBenchmark(kind="table", name="m", path="owner/data", split="test", revision="abc")
    assert len(load(settings).rows) == 1
    assert asked == {"path": "owner/data", "name": None, "split": "test", "revision": "abc"}


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(path: str, **options: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(DataError, match=r"benchmark.path=owner/data: is no file here and cannot be read from the hub"):
        load(TableBenchmark(kind="table", name="m", path="owner/data"))


def test_a_file_that_is_not_there_is_no_name_of_the_hub() -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        load(TableBenchmark(kind="table", name="m", path="data/missing.jsonl"))
