"""`grpo-exp compare`: settings, provenance and result of two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.commands import compare
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, write_json
from unit.run_folder import a_result, settings_of


def a_run(
    folder: Path, name: str, *words: str, provenance: dict[str, Any], result: dict[str, Any] | None
) -> RunDirectory:
    directory = find_or_create(folder, name, resume=True)
    begin_attempt(directory)
    write_json(directory.config_json, settings_of(folder, *words).model_dump(mode="json"))
    write_json(directory.provenance, {"time": 1.0, "attempt": 1, **provenance})
    steps = [{"step": 1, "time": 1.0, "metrics": {"train/reward": 0.25}}, {"step": 2, "time": 2.0, "metrics": {}}]
    directory.metrics.write_text("".join(f"{json.dumps(record)}\n" for record in steps))
    if result is not None:
        write_json(directory.result, result)
    return directory


@pytest.fixture
def runs(tmp_path: Path) -> tuple[RunDirectory, RunDirectory]:
    after = {"after": {"accuracy": 0.81, "accuracy_interval": [0.78, 0.84]}}
    return (
        a_run(tmp_path, "a-s0", provenance={"git": {"commit": "1", "diff": "x\ny\n"}, "packages": {"trl": "1.16.0"}},
              result=a_result(eval=after)),
        a_run(tmp_path, "b-s1", "seed=1", "trainer.learning_rate=2e-4",
              provenance={"git": {"commit": "1", "diff": ""}, "packages": {"trl": "1.16.1"}}, result=None),
    )  # fmt: skip


def test_what_differs_is_shown_and_what_does_not_is_left_out(
    runs: tuple[RunDirectory, RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(run.path) for run in runs] + ["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == [
        {"name": "seed", "left": 0, "right": 1},
        {"name": "trainer.learning_rate", "left": 1e-4, "right": 2e-4},
    ]
    assert found["provenance"] == [
        {"name": "git.diff", "left": "x\ny\n", "right": ""},
        {"name": "packages.trl", "left": "1.16.0", "right": "1.16.1"},
    ]
    result = {row["name"]: (row["left"], row["right"]) for row in found["result"]}
    assert result["status"] == ("completed", "unfinished")
    assert result["accuracy after"] == (0.81, None)
    assert result["accuracy after, 95 %"] == ([0.78, 0.84], None)
    assert result["train/reward at step 1"] == (0.25, 0.25)  # step 2 generated nothing


def test_tables_for_people(
    runs: tuple[RunDirectory, RunDirectory], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    compare.main([str(run.path) for run in runs])
    text = capsys.readouterr().out
    assert "trainer.learning_rate" in text
    assert "2 lines" in text  # the uncommitted changes
    assert "unfinished" in text
    compare.main([str(runs[0].path)] * 2)
    assert "Settings: no difference" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["one"], ["a", "b", "c"], ["a", "b", "--jsn"]])
def test_two_folders_are_wanted(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="Usage"):
        compare.main(words)


def test_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing: holds no config\.json"):
        compare.main([str(tmp_path / "nothing"), str(tmp_path)])
