"""Rows whose target the reward cannot judge are left out before training, counted and listed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from grpo_exp.data.load import leave_out_unjudgeable, load_prompts
from grpo_exp.data.prompts import PromptData, PromptRow, build_prompt
from grpo_exp.errors import ConfigError
from grpo_exp.observers import MainObserver
from grpo_exp.preflight import prepare
from grpo_exp.preflight.notes import notes
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.dataset import JsonlDataset
from grpo_exp.settings.reward import RewardSettings
from grpo_exp.stop_watch import StopWatch
from unit.run_folder import a_watchdog

REWARD = RewardSettings.model_validate({"components": {"correctness": {"kind": "math"}}})


def rows(*targets: str) -> tuple[PromptRow, ...]:
    return tuple(PromptRow(build_prompt(f"q{place}", None), target) for place, target in enumerate(targets))


def test_rows_are_left_out_of_both_splits_and_listed_by_reason() -> None:
    """2 of 41 rows are under 5 %."""
    data = PromptData(rows(*["7"] * 30, "2x+"), rows(*["8"] * 9, r"\frac{1}{"), {"without a target": 3})
    kept = leave_out_unjudgeable(data, REWARD)
    assert (len(kept.train), len(kept.evaluation)) == (30, 9)
    reason = "whose target correctness cannot judge (unparsable_target)"
    assert kept.dropped == {"without a target": 3, reason: 2}
    assert kept.dropped_targets == {reason: ("2x+", r"\frac{1}{")}


def test_data_that_can_be_judged_are_handed_back_as_they_are() -> None:
    data = PromptData(rows("7"), rows("8"))
    assert leave_out_unjudgeable(data, REWARD) is data


def test_too_many_are_refused_with_reason_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "target": "2x+"}) + "\n" for i in range(20)))
    settings = load.to_settings(load.compose(["tracker=none", "dataset=jsonl", f"dataset.path={path}"]))
    with pytest.raises(
        ConfigError, match=r"20 of 20 targets cannot be judged: 20 unparsable_target .*; choose the rewa"
    ):
        prepare(settings)


def test_reader_is_told_which_targets_were_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    targets = [*[str(i) for i in range(60)], "2x+"]
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "target": t}) + "\n" for i, t in enumerate(targets)))
    settings = load.to_settings(
        load.compose(["tracker=none", "dataset=jsonl", f"dataset.path={path}", "model=local", "model.path=org/name"])
    )
    prepared = prepare(settings)
    assert len(prepared.data.train) + len(prepared.data.evaluation) == 60
    told = "dataset: 1 rows whose target correctness cannot judge (unparsable_target) are left out: '2x+'"
    assert told in notes(settings, prepared.data)


def test_reward_without_targets_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "target": "2x+"}) + "\n" for i in range(200)))
    settings = load.to_settings(load.compose(["tracker=none", "reward=text_quality"]))
    data = load_prompts(
        JsonlDataset(kind="jsonl", path=str(path)), seed=0, plan=solve_batch(settings), reward=settings.reward
    )
    assert len(data.train) + len(data.evaluation) == 200


def test_check_does_not_slow_the_arithmetic_data_set_down() -> None:
    """4000 training rows and 200 held out, of 59 different sums."""
    settings = load.to_settings(load.compose(["tracker=none"]))
    data = load_prompts(settings.dataset, seed=0, plan=solve_batch(settings))
    started = time.thread_time()
    assert leave_out_unjudgeable(data, settings.reward) is data
    assert time.thread_time() - started < 0.3


def test_run_lists_every_target_that_was_left_out_in_its_events(tmp_path: Path) -> None:
    settings = load.to_settings(load.compose(["tracker=none"]))
    directory = RunDirectory(tmp_path)
    write_json(directory.provenance, {"seed": 0})
    data = leave_out_unjudgeable(PromptData(rows(*["7"] * 40, "2x+", "3x+"), rows("8")), REWARD)
    observer = MainObserver(directory, StopWatch(directory, owner=0), settings, watchdog=a_watchdog(directory))
    observer.on_data(data)
    observer.close("completed")
    (event,) = [json.loads(line) for line in directory.events.read_text().splitlines()]
    assert (event["kind"], event["count"], event["targets"]) == ("data", 2, ["2x+", "3x+"])
    assert json.loads(directory.provenance.read_text())["dataset_fingerprint"] == data.fingerprint()
