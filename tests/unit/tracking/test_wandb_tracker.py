"""Offline W&B runs hold exactly the records, one run per job, read back with W&B's own reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.settings.tracker import NoTracker, WandbTracker
from grpo_exp.tracking.background import BackgroundTracker
from grpo_exp.tracking.build import build_tracker
from grpo_exp.tracking.tracker import RunInfo
from grpo_exp.tracking.wandb_tracker import WandbRunTracker, resolve_mode


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def build(directory: Path) -> WandbRunTracker:
    tracker = build_tracker(WandbTracker(kind="wandb"), directory.parent, directory)
    assert isinstance(tracker, WandbRunTracker)
    return tracker


def read(directory: Path) -> list[list[dict[str, Any]]]:
    """Return the records of every W&B folder below a run directory, oldest first."""
    logs = sorted(directory.glob("wandb/offline-run-*/*.wandb"))
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json"]
    outputs = [subprocess.run([*command, str(log)], capture_output=True, text=True, check=True).stdout for log in logs]
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def history(records: list[dict[str, Any]]) -> list[dict[str, float]]:
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [{key: value for key, value in item.items() if not key.startswith("_")} for item in items]


def test_a_step_that_goes_back_is_kept_and_a_resume_goes_on_under_the_same_id(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    ids: dict[str, str] = {}
    for steps in ([1, 2, 3], [2, 3, 4]):
        tracker = build(directory)
        config = {"trainer": {"max_steps": 4}}
        new_ids = tracker.start(RunInfo("demo", "abc-s0", config, directory, {"group": "g"}, ids))
        assert ids in ({}, new_ids)
        ids = new_ids
        for step in steps:
            tracker.log({"step": step, "time": 1.0, "metrics": {"train/reward": step / 10, "val/pass@1": 0.5}})
        tracker.finish("stopped")
    folders = read(directory)
    for records, steps in zip(folders, ([1, 2, 3], [2, 3, 4]), strict=True):
        assert history(records) == [
            {"train/global_step": step, "train/reward": step / 10, "val/pass@1": 0.5} for step in steps
        ]
        runs = [record["run"] for record in records if record["type"] == "run"]
        assert {run["run_id"] for run in runs} == {ids["wandb_id"]}
        assert runs[-1]["display_name"] == "demo/abc-s0"
        assert runs[-1]["run_group"] == "g"
        axes = [record["metric"].get("step_metric") for record in records if record["type"] == "metric"]
        assert axes[-1] == "train/global_step"
        assert records[-1]["exit"]["exit_code"] == 0


def test_three_jobs_of_a_multirun_are_three_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    warnings: list[str] = []
    directories = [tmp_path / f"run{seed}" for seed in range(3)]
    jobs = []
    for seed, directory in enumerate(directories):
        directory.mkdir()
        background = BackgroundTracker(build(directory), warnings.append)
        background.start(RunInfo("demo", f"abc-s{seed}", {"seed": seed}, directory))
        background.log({"step": 1, "time": 1.0, "metrics": {"a": float(seed)}})
        jobs.append(background)
    # None is finished before the last has started: runs of one process may overlap.
    for seed, background in enumerate(jobs):
        background.finish("failed" if seed == 0 else "completed", timeout_seconds=60)
    assert warnings == []
    assert capfd.readouterr() == ("", "")
    seen_ids = set()
    for seed, directory in enumerate(directories):
        [records] = read(directory)
        assert history(records) == [{"a": seed, "train/global_step": 1}]
        assert f'"seed": {seed}' in json.dumps(records)
        seen_ids |= {record["run"]["run_id"] for record in records if record["type"] == "run"}
        assert records[-1]["exit"]["exit_code"] == (1 if seed == 0 else 0)
    assert len(seen_ids) == 3


def test_finishing_a_run_that_never_started_does_nothing(tmp_path: Path) -> None:
    build(tmp_path).finish("failed")


def test_the_open_command_uploads_every_attempt(tmp_path: Path) -> None:
    command = build(tmp_path / "a b").open_command()
    assert command == f"{sys.executable} -m wandb sync '{tmp_path}/a b/wandb'/offline-run-*"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "k" * 40}, "online"),
        ({"WANDB_API_KEY": "k" * 40, "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_auto_is_online_only_where_a_key_is_known(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert resolve_mode("auto") == expected


def test_auto_finds_a_key_in_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.wandb.ai login user password key\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert resolve_mode("auto") == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert resolve_mode("auto") == "offline"


def test_nothing_is_built_where_nothing_is_tracked(tmp_path: Path) -> None:
    assert build_tracker(NoTracker(kind="none"), tmp_path, tmp_path) is None
    assert build_tracker(WandbTracker(kind="wandb", mode="disabled"), tmp_path, tmp_path) is None


def test_building_a_tracker_imports_no_backend() -> None:
    code = "import sys, grpo_exp.tracking.build; sys.exit(bool({'mlflow', 'wandb', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
