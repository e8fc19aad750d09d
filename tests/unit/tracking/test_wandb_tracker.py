"""Offline W&B runs hold exactly the records, one run per job, read back with W&B's own reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_exp.settings.tracker import TrackerSettings, WandbTracker
from grpo_exp.tracking.build import active_trackers
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus
from grpo_exp.tracking.wandb_file import is_whole
from grpo_exp.tracking.wandb_tracker import WandbRunTracker, resolve_mode
from unit.tracking.wandb_files import history, read


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def build(directory: Path) -> WandbRunTracker:
    return WandbRunTracker("p", entity=None, mode="offline", directory=directory, finish_timeout_seconds=30)


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
            tracker.log([{"step": step, "time": 1.0, "metrics": {"train/reward": step / 10, "val/pass@1": 0.5}}])
        tracker.finish("stopped", 9.0)
    folders = read(directory)
    for records, steps in zip(folders, ([1, 2, 3], [2, 3, 4]), strict=True):
        assert history(records) == [
            {"train/global_step": step, "train/reward": step / 10, "val/pass@1": 0.5} for step in steps
        ]
        runs = [record["run"] for record in records if record["type"] == "run"]
        assert {run["run_id"] for run in runs} == {ids["id"]}
        assert runs[-1]["display_name"] == "demo/abc-s0"
        assert runs[-1]["run_group"] == "g"
        axes = [record["metric"].get("step_metric") for record in records if record["type"] == "metric"]
        assert axes[-1] == "train/global_step"
        assert records[-1]["exit"]["exit_code"] == 0


def test_three_jobs_of_a_multirun_are_three_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directories = [tmp_path / f"run{seed}" for seed in range(3)]
    jobs = []
    for seed, directory in enumerate(directories):
        directory.mkdir()
        tracker = build(directory)
        tracker.start(RunInfo("demo", f"abc-s{seed}", {"seed": seed}, directory))
        tracker.log([{"step": 1, "time": 1.0, "metrics": {"a": float(seed)}}])
        jobs.append(tracker)
    # None is finished before the last has started: runs of one process may overlap.
    statuses: list[RunStatus] = ["failed", "killed", "ended_by_rule"]
    for tracker, status in zip(jobs, statuses, strict=True):
        tracker.finish(status, 9.0)
    assert capfd.readouterr() == ("", "")
    seen_ids = set()
    for seed, directory in enumerate(directories):
        [records] = read(directory)
        assert history(records) == [{"a": seed, "train/global_step": 1}]
        assert f'"seed": {seed}' in json.dumps(records)
        seen_ids |= {record["run"]["run_id"] for record in records if record["type"] == "run"}
        assert records[-1]["exit"]["exit_code"] == (1, 255, 3)[seed]
    assert len(seen_ids) == 3


def test_findings_tables_and_files_are_attached_and_a_cut_file_is_noticed(tmp_path: Path) -> None:
    """The rows are long enough for records that lie over several blocks of 32 KiB of the file."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.yaml").write_text("seed: 0\n")
    tracker = build(directory)
    tracker.start(RunInfo("demo", "abc-s0", {"prompt": "x" * 100_000}, directory))
    tracker.alert({"kind": "warning", "rule": "dead_groups", "step": 12, "text": "no gradient is left"})
    tracker.alert({"kind": "info", "rule": "slow", "step": 12, "text": "only for the events"})
    rows = [["1+1", 0.5], ["2+2", None]]
    tracker.add_table(CompletionsTable("train_000010", "train", 10, ["prompt", "advantage"], rows))
    tracker.add_file(directory / "config.yaml")
    tracker.finish("completed", 9.0)
    [records] = read(directory)
    [alert] = [record["alert"] for record in records if record["type"] == "alert"]
    assert (alert["title"], alert["text"], alert["level"]) == (
        "warning: dead_groups", "step 12: no gradient is left", "WARN"
    )  # fmt: skip
    [tables] = directory.glob("wandb/offline-run-*/files/media/table/completions")
    [table] = [json.loads(path.read_text()) for path in tables.iterdir()]
    assert (table["columns"], table["data"]) == (["prompt", "advantage"], rows)
    [kept] = directory.glob("wandb/offline-run-*/files/run/config.yaml")
    assert kept.read_text() == "seed: 0\n"
    [log] = directory.glob("wandb/offline-run-*/*.wandb")
    content = log.read_bytes()
    assert len(content) > 3 * 32 * 1024
    assert is_whole(log)
    for size in (0, 7, 10, 40_000, len(content) - 1):
        log.write_bytes(content[:size])
        assert not is_whole(log), size


def test_finishing_a_run_that_never_started_does_nothing(tmp_path: Path) -> None:
    build(tmp_path).finish("failed", 9.0)


def test_the_open_command_uploads_every_attempt(tmp_path: Path) -> None:
    command = build(tmp_path / "a b").open_command({"id": "abc"})
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


def test_nothing_is_fed_where_nothing_is_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert active_trackers(TrackerSettings()) == []
    assert active_trackers(TrackerSettings(wandb=WandbTracker(mode="disabled"))) == []
    assert active_trackers(TrackerSettings(wandb=WandbTracker())) == ["wandb"]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert active_trackers(TrackerSettings(wandb=WandbTracker())) == []


def test_building_a_tracker_imports_no_backend() -> None:
    code = (
        "import sys, grpo_exp.tracking.build, grpo_exp.tracking.feeding; "
        "sys.exit(bool({'mlflow', 'wandb', 'tensorboard', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
