"""Files of a sweep that something else has cut or changed: said by name, and what is whole goes on to be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp import __main__
from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.manifest import SweepDirectory, extend, merge
from grpo_exp.sweeps.states import read_statuses
from unit.sweeps.sweep_folder import CALL, a_point, a_sweep, finish


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """Three runs, all done."""
    sweep = a_sweep(tmp_path / "s", seeds=3)
    for entry in sweep.read_entries():
        finish(sweep.run(entry))
    return sweep


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-20])


def drop_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


@pytest.mark.parametrize("action", [["sweep", "status"], ["sweep", "resume"], ["sweep", "cancel"], ["report"]])
@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("manifest.jsonl", cut, "line 3 is no JSON object"),
        ("manifest.jsonl", drop_line, "are not numbered from 0, so lines are missing"),
        ("sweep.json", cut, "is no JSON object, so something else has changed it; remove it"),
        ("cancelled.json", lambda path: path.write_text("[1]"), "is no JSON object"),
    ],
)
def test_a_damaged_file_is_named_with_a_way_out(
    sweep: SweepDirectory,
    capsys: pytest.CaptureFixture[str],
    *,
    action: list[str],
    name: str,
    damage: Callable[[Path], None],
    told: str,
) -> None:
    damage(sweep.path / name)
    with pytest.raises(SystemExit) as caught:
        __main__.main([*action, str(sweep.path)])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert name in said
    assert told in said


@pytest.mark.parametrize("text", ['{"status": "comp', "{}", "[]"])
def test_a_damaged_result_is_the_trouble_of_its_run_alone(sweep: SweepDirectory, text: str) -> None:
    sweep.run(sweep.read_entry(1)).result.write_text(text)
    statuses = read_statuses(sweep)
    assert [status.state for status in statuses] == ["completed", "failed", "completed"]
    assert "holds no result" in str(statuses[1].reason)


def test_a_damaged_refusal_is_the_trouble_of_its_run_alone(sweep: SweepDirectory) -> None:
    refusal = sweep.refusal(sweep.read_entry(2))
    refusal.parent.mkdir()
    refusal.write_text("{")
    assert [status.state for status in read_statuses(sweep)] == ["completed", "completed", "failed"]


def test_settings_that_were_lost_are_written_anew_by_the_call_that_planned_them(sweep: SweepDirectory) -> None:
    """Without them no run may slip into the line of another one."""
    before = sweep.read_all_settings()
    sweep.settings.write_text(f"{json.dumps(before[0])}\n")
    with pytest.raises(ConfigError, match="line 3, the settings of run 2, is missing or no JSON object"):
        sweep.read_settings(sweep.read_entry(2))
    with pytest.raises(ConfigError, match="the settings of run 1 are missing"):
        merge(sweep, [a_point(sweep.path, seed=2)])
    extend(sweep, [a_point(sweep.path, seed=seed) for seed in (2, 1)], call=CALL)
    assert sweep.read_all_settings() == before


def test_runs_are_found_again_where_the_manifest_was_moved_away(sweep: SweepDirectory) -> None:
    cut(sweep.manifest)
    sweep.manifest.rename(sweep.path / "old")
    sweep.settings.unlink()
    extend(sweep, [a_point(sweep.path, seed=seed) for seed in range(3)], call=CALL)
    assert [status.state for status in read_statuses(sweep)] == ["completed"] * 3
