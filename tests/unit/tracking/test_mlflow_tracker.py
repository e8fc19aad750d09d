"""A real MLflow SQLite store holds exactly the records, over faults, repeats and resumes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.tracking.metrics_log import MetricsRecord, to_record
from grpo_exp.tracking.mlflow_params import flatten, is_same_param, to_param_text
from grpo_exp.tracking.mlflow_tracker import MlflowRunTracker, default_tracking_uri
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus

# MLflow 3.17 uses a loader that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


@pytest.fixture(scope="module")
def output_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the module: creating the tables takes seconds."""
    return tmp_path_factory.mktemp("outputs")


def build(output_dir: Path, uri: str | None = None) -> MlflowRunTracker:
    artifacts = output_dir / "mlartifacts"
    return MlflowRunTracker(uri or default_tracking_uri(output_dir), experiment="e", artifact_directory=artifacts)


def info(config: dict[str, Any] | None = None, **fields: Any) -> RunInfo:
    return RunInfo("demo", "abc-s0", config or {}, Path("/runs/abc-s0"), **fields)


def client(output_dir: Path) -> Any:
    from mlflow.tracking.client import MlflowClient

    return MlflowClient(f"sqlite:///{output_dir}/mlflow.db")


def history(output_dir: Path, run_id: str, name: str) -> list[tuple[int, float, int]]:
    points = client(output_dir).get_metric_history(run_id, name)
    return sorted((point.step, point.value, point.timestamp) for point in points)


def test_points_carry_the_step_and_the_time_of_the_record(output_dir: Path) -> None:
    tracker = build(output_dir)
    run_id = tracker.start(info(tags={"algorithm": "dapo"}))["run_id"]
    tracker.log([{"step": 1, "time": 1700000000.25, "metrics": {"train/reward": 0.5, "val/pass@1": 0.25}}])
    tracker.log([{"step": 2, "time": 1700000001.25, "metrics": {"train/reward": 0.75}}])
    tracker.finish("completed", 9.0)
    assert history(output_dir, run_id, "train/reward") == [
        (1, 0.5, 1700000000250),
        (2, 0.75, 1700000001250),
    ]
    run = client(output_dir).get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "demo/abc-s0"
    assert run.data.tags["algorithm"] == "dapo"
    assert run.data.tags["grpo_exp.directory"] == "/runs/abc-s0"
    cleaned = [name for name in run.data.metrics if name.startswith("val/")]
    assert len(cleaned) == 1
    assert cleaned[0].startswith("val/pass_at_1-")


def test_records_that_were_taken_are_there_at_once(output_dir: Path) -> None:
    """A process that is killed after `log` has lost nothing."""
    tracker = build(output_dir)
    run_id = tracker.start(info())["run_id"]
    tracker.log([{"step": step, "time": float(step), "metrics": {"a": 1.0}} for step in range(1, 41)])
    assert history(output_dir, run_id, "a") == [(step, 1.0, 1000 * step) for step in range(1, 41)]
    tracker.finish("completed", 9.0)


def test_a_record_that_is_sent_twice_is_kept_once(output_dir: Path) -> None:
    tracker = build(output_dir)
    run_id = tracker.start(info())["run_id"]
    for _ in range(2):
        tracker.log([{"step": 1, "time": 1700000000.123456, "metrics": {"a": 0.1}}])
    tracker.finish("completed", 9.0)
    assert history(output_dir, run_id, "a") == [(1, 0.1, 1700000000123)]


def test_a_resumed_run_goes_on_in_its_tracker_run(output_dir: Path) -> None:
    first = build(output_dir)
    ids = first.start(info({"lr": 1, "steps": 10, "same": [1, 2]}))
    first.log([{"step": 1, "time": 1.0, "metrics": {"a": 1.0}}])
    first.finish("stopped", 9.0)
    stopped = client(output_dir).get_run(ids["run_id"])
    assert (stopped.info.status, stopped.info.end_time, stopped.data.tags["grpo_exp.status"]) == (
        "KILLED",
        9000,
        "stopped",
    )
    second = build(output_dir)
    resumed = info({"lr": "1.0", "steps": 20, "same": [1, 2], "new": None}, previous_ids=ids)
    assert second.start(resumed) == ids
    assert client(output_dir).get_run(ids["run_id"]).info.status == "RUNNING"
    second.log([{"step": 2, "time": 2.0, "metrics": {"a": 2.0}}])
    second.finish("completed", 9.0)
    run = client(output_dir).get_run(ids["run_id"])
    assert history(output_dir, ids["run_id"], "a") == [(1, 1.0, 1000), (2, 2.0, 2000)]
    assert run.data.params == {"lr": "1", "steps": "10", "same": "[1, 2]", "new": "null"}
    changes = {key: value for key, value in run.data.tags.items() if key.startswith("changed.")}
    assert changes == {"changed.steps": "10 -> 20"}
    assert run.info.status == "FINISHED"


def test_labels_and_values_that_attempts_change_are_those_of_the_latest_one(output_dir: Path) -> None:
    """A parameter that changes and changes back, one that differs behind the cut only, and a new label."""
    attempts = [
        ({"steps": 1, "long": "x" * 400 + "1"}, {"team": "a"}),
        ({"steps": 2, "long": "x" * 400 + "2"}, {"team": "b", "note": "n"}),
        ({"steps": 1.0, "long": "x" * 400 + "2"}, {"team": "b", "note": "n"}),
    ]
    ids: dict[str, str] = {}
    for config, tags in attempts:
        tracker = build(output_dir)
        ids = tracker.start(info(config, previous_ids=ids, tags=tags))
        tracker.finish("stopped", 9.0)
    found = client(output_dir).get_run(ids["run_id"]).data.tags
    assert (found["team"], found["note"]) == ("b", "n")
    assert found["changed.steps"] == "1 -> 2 -> 1.0"
    assert found["changed.long"].count(" -> ") == 1


def test_ids_of_a_run_that_is_gone_start_a_new_one(output_dir: Path) -> None:
    tracker = build(output_dir)
    ids = tracker.start(info(previous_ids={"run_id": "0" * 32}))
    tracker.finish("completed", 9.0)
    assert ids["run_id"] != "0" * 32


def test_two_runs_at_once_in_one_process_stay_apart(output_dir: Path) -> None:
    trackers = [build(output_dir), build(output_dir)]
    run_ids = [tracker.start(info({"seed": seed}))["run_id"] for seed, tracker in enumerate(trackers)]
    for seed, tracker in enumerate(trackers):
        tracker.log([{"step": 1, "time": 1.0, "metrics": {"a": float(seed)}}])
    statuses: list[RunStatus] = ["failed", "completed"]
    for tracker, status in zip(trackers, statuses, strict=True):
        tracker.finish(status, 9.0)
    runs = [client(output_dir).get_run(run_id) for run_id in run_ids]
    assert [run.data.params["seed"] for run in runs] == ["0", "1"]
    assert [run.data.metrics["a"] for run in runs] == [0.0, 1.0]
    assert [run.info.status for run in runs] == ["FAILED", "FINISHED"]


def test_long_and_many_settings_are_kept(output_dir: Path) -> None:
    config = {"prompt": "x" * 6001, "many": {f"key{number}": number for number in range(250)}}
    tracker = build(output_dir)
    run_id = tracker.start(info(config))["run_id"]
    tracker.finish("completed", 9.0)
    store = client(output_dir)
    params = store.get_run(run_id).data.params
    assert len(params) == 251
    assert len(params["prompt"]) == 250
    assert params["prompt"].endswith("[cut, 6001 characters, e12d2a: params/prompt.txt]")
    folder = Path(store.get_run(run_id).info.artifact_uri.removeprefix("file://"))
    assert (folder / "params" / "prompt.txt").read_text() == "x" * 6001
    assert folder.is_relative_to(output_dir / "mlartifacts")


def test_values_that_mlflow_refuses_are_skipped(output_dir: Path) -> None:
    tracker = build(output_dir)
    run_id = tracker.start(info())["run_id"]
    awkward: Any = {"step": "5", "time": 1.0, "metrics": {"none": None, "list": [1], "good": 2.0}}
    tracker.log([awkward])
    tracker.log([to_record(6, {"nan": float("nan"), "good": 3.0}, 2.0)])
    tracker.finish("completed", 9.0)
    assert client(output_dir).get_run(run_id).data.metrics == {"good": 3.0}
    assert history(output_dir, run_id, "good") == [(5, 2.0, 1000), (6, 3.0, 2000)]


def test_every_name_of_the_cases_is_a_curve_of_its_own(output_dir: Path, shared_cases: Path) -> None:
    cases = [json.loads(line)["input"] for line in (shared_cases / "tracker.jsonl").read_text().splitlines()]
    names = [case["metric_name"] for case in cases if "metric_name" in case]
    names += [name for case in cases for name in case.get("metric_names", [])]
    assert len(set(names)) == len(names) == 11  # nine refused or plain names, and the pair pass@1, pass#1
    tracker = build(output_dir)
    run_id = tracker.start(info())["run_id"]
    tracker.log([{"step": 1, "time": 1.0, "metrics": {name: float(number) for number, name in enumerate(names)}}])
    tracker.finish("completed", 9.0)
    found = client(output_dir).get_run(run_id).data.metrics
    assert sorted(found.values()) == [float(number) for number in range(11)]
    assert found["rewards/math/mean"] == 0.0  # logged as it is


def test_two_thousand_metrics_in_one_record_pass(output_dir: Path) -> None:
    tracker = build(output_dir)
    run_id = tracker.start(info())["run_id"]
    record: MetricsRecord = {"step": 1, "time": 1.0, "metrics": {f"m{n}": float(n) for n in range(2001)}}
    tracker.log([record])
    tracker.finish("completed", 9.0)
    assert client(output_dir).get_run(run_id).data.metrics == record["metrics"]


def test_findings_tables_and_files_are_attached(
    output_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = build(output_dir)
    run_id = tracker.start(info(tags={"group": "sweep", "team": "x" * 600}))["run_id"]
    tracker.alert({"kind": "warning", "rule": "dead_groups", "step": 12, "text": "no gradient is left"})
    tracker.alert({"kind": "critical", "rule": "timeout:code", "text": "slow"})
    tracker.alert({"kind": "warning", "rule": "checker", "subject": "code/crash", "step": 3, "text": "killed"})
    for name in ("train_000010", "train_000020", "train_000010"):  # the first one comes twice, changed
        tracker.add_table(CompletionsTable(name, "train", 10, ["prompt", "advantage"], [["1+1", 0.5], ["2+2", None]]))
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    tracker.add_file(tmp_path / "config.yaml")
    tracker.finish("ended_by_rule", 9.0)
    run = client(output_dir).get_run(run_id)
    tags = run.data.tags
    assert tags["group"] == "sweep"
    assert tags["team"] == "x" * 500
    assert tags["health.dead_groups"] == "warning (step 12): no gradient is left"
    assert [value for key, value in tags.items() if key.startswith("health.timeout")] == ["critical: slow"]
    assert tags["health.checker.code/crash"] == "warning (step 3): killed"
    assert (run.info.status, tags["grpo_exp.status"]) == ("KILLED", "ended_by_rule")
    listed = ["completions/train_000020.json", "completions/train_000010.json"]
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [{"path": path, "type": "table"} for path in listed]
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    assert (folder / "config.yaml").read_text() == "seed: 0\n"
    # MLflow's own reader of tables, which looks for the run in the store of the environment
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{output_dir}/mlflow.db")
    table = client(output_dir).load_table(run.info.experiment_id, "completions/train_000020.json", [run_id])
    assert table["prompt"].tolist() == ["1+1", "2+2"]


def test_the_open_command_names_the_store(output_dir: Path) -> None:
    command = shlex.split(build(output_dir).open_command({"run_id": "r", "experiment_id": "1"}))
    assert command == [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{output_dir}/mlflow.db"]
    server = build(output_dir, "https://user:secret@mlflow.example.org")
    page = "https://user:***@mlflow.example.org/#/experiments/1/runs/r"
    assert shlex.split(server.open_command({"run_id": "r", "experiment_id": "1"}))[-1] == page
    assert server.destination == "https://user:***@mlflow.example.org e"


def test_settings_are_flattened_to_dotted_names() -> None:
    config = {"trainer": {"lr": 1e-6, "extra": {}}, "seed": None, "list": [1]}
    assert flatten(config) == {"trainer.lr": 1e-6, "trainer.extra": {}, "seed": None, "list": [1]}


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1", "1.0", True),
        ("1e-06", "0.000001", True),
        ("true", "1", False),
        ("a", "a", True),
        ("1", "2", False),
    ],
)
def test_another_spelling_of_a_number_is_no_change(left: str, right: str, *, same: bool) -> None:
    assert is_same_param(left, right) is same


def test_a_setting_at_the_limit_is_not_cut() -> None:
    assert to_param_text("x" * 250, "a.txt") == ("x" * 250, False)
    text, is_cut = to_param_text("x" * 251, "a.txt")
    assert is_cut
    assert len(text) == 250
