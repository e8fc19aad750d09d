"""Tables of the hub and copies of them: where they are found, what is said when they are not, and the cache."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from grpo_exp.data import hub
from grpo_exp.data.load import load_rows
from grpo_exp.data.prompts import PromptData
from grpo_exp.errors import DataError
from grpo_exp.settings.dataset import HubDataset
from grpo_exp.settings.reward import RewardSettings

REWARD = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})
ROWS = [{"prompt": f"{i}+1?", "target": str(i + 1)} for i in range(20)]


def read(path: Path, **fields: Any) -> PromptData:
    settings = HubDataset.model_validate({"kind": "hub", "path": str(path), **fields})
    return load_rows(settings, seed=0, reward=REWARD)


def refusal(path: Path, **fields: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **fields)
    return str(caught.value)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_form_of_a_local_copy_gives_the_same_rows(tmp_path: Path) -> None:
    """A file of each kind, a saved data set, and a clone of a repository with its splits."""
    table = Dataset.from_list(ROWS)
    lines = write_lines(tmp_path / "rows.jsonl", ROWS)
    table.to_parquet(tmp_path / "rows.parquet")
    table.to_csv(tmp_path / "rows.csv")
    table.save_to_disk(tmp_path / "saved")
    clone = tmp_path / "clone"
    (clone / "main").mkdir(parents=True)
    table.to_parquet(clone / "main" / "train-00000-of-00001.parquet")
    table.select(range(5)).to_parquet(clone / "main" / "test-00000-of-00001.parquet")
    (clone / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n"
        "  - split: test\n    path: main/test-*\n---\n"
    )
    expected = read(lines)
    assert (len(expected.train), len(expected.evaluation)) == (16, 4)
    for path in (tmp_path / "rows.parquet", tmp_path / "rows.csv", tmp_path / "saved"):
        assert read(path).fingerprint() == expected.fingerprint()
    assert read(clone, config_name="main").fingerprint() == expected.fingerprint()
    split = read(clone, config_name="main", eval_split="test")  # the 5 of the test split are rows of the other, too
    assert (len(split.train), len(split.evaluation), dict(split.dropped)) == (15, 5, {"that are held out, too,": 5})


def test_second_time_the_rows_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(
        tmp_path / "rows.jsonl", [*ROWS, {"prompt": "", "target": "1"}, {"prompt": "q", "target": "2x+"}]
    )
    first = read(path)
    assert first.dropped == {"without a prompt": 1, "whose target correctness cannot judge (unparsable_target)": 1}

    def fail(*_: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("grpo_exp.data.load.map_tables", fail)
    again = read(path)
    assert (again.train, again.evaluation) == (first.train, first.evaluation)
    assert (again.dropped, again.dropped_targets) == (first.dropped, first.dropped_targets)
    with pytest.raises(AssertionError, match="read again"):  # another setting is another entry
        read(path, system_prompt="S")


def test_changed_table_is_read_again(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", ROWS)
    read(path)
    write_lines(path, ROWS[:10])
    assert len(read(path).train) == 8


def test_changed_file_of_the_same_time_is_read_again(tmp_path: Path) -> None:
    """An archive gives all of its files one time, and the new rows are as long as the old ones."""
    path = tmp_path / "rows.jsonl"
    found = []
    for operand in (1, 2):
        write_lines(path, [{"prompt": f"{i}+{operand}?", "target": "7"} for i in range(20)])
        os.utime(path, (1e9, 1e9))
        found.append({row.prompt[0]["content"] for row in read(path).train})
    assert all(text.endswith("+1?") for text in found[0])
    assert all(text.endswith("+2?") for text in found[1])


def test_column_that_no_reward_can_be_handed_is_refused(tmp_path: Path) -> None:
    table = Dataset.from_list([{**row, "when": datetime.datetime(2026, 1, 1)} for row in ROWS])
    table.to_parquet(tmp_path / "rows.parquet")
    assert "dataset.extra_columns=when: " in refusal(tmp_path / "rows.parquet", extra_columns=["when"])
    assert len(read(tmp_path / "rows.parquet").train) == 16  # where nobody asks for the column, it is no matter


def test_broken_file_is_told_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1?", "target": "1"}\n{"prompt": \n')
    assert "JSON parse error" in refusal(tmp_path / "rows.jsonl")


def test_what_cannot_be_found_is_told_with_its_setting(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", ROWS)
    assert "dataset.prompt_column=question" in refusal(path, prompt_column="question")
    assert "its columns are prompt, target" in refusal(path, target_column="reward_model.ground_truth")
    assert "no kind of file that can be read" in refusal(write_lines(tmp_path / "rows.txt", ROWS))
    assert "is one file without splits; give dataset.eval_path=FILE" in refusal(path, eval_split="test")
    assert "dataset.eval_path=" in refusal(path, eval_path=str(tmp_path / "none"), eval_split="test")
    none = [{"prompt": "", "target": "1"}, {"prompt": "1?", "target": None}]
    assert "none of its 2 rows can be used (1 without a prompt, 1 without a target)" in refusal(
        write_lines(tmp_path / "bad.jsonl", none)
    )


def test_id_on_the_hub_is_asked_for_with_commit_and_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def answer(path: str, name: str | None, *, revision: str | None, split: str) -> Dataset:
        asked.append((path, name, revision, split))
        return Dataset.from_list(ROWS)

    monkeypatch.setattr("datasets.load_dataset", answer)
    settings = HubDataset.model_validate(
        {"kind": "hub", "path": "a/b", "config_name": "c", "revision": "d", "split": "train+test", "eval_path": "e/f",
         "eval_revision": "g", "eval_split": "test"}
    )  # fmt: skip
    hub.open_tables(settings)
    assert asked == [("a/b", "c", "d", "train+test"), ("e/f", None, "g", "test")]


def test_machine_without_network_says_so() -> None:
    """The tests run with HF_HUB_OFFLINE=1."""
    message = refusal(Path("nobody/nothing"))
    assert message.startswith("dataset.path=nobody/nothing: split 'train' cannot be loaded (")
    assert "a machine without internet needs the latter" in message
