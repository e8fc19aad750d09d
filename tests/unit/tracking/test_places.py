"""One run in each place that it was sent to: what is known of a place outlasts a copy to another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from grpo_exp.commands import sync
from grpo_exp.rundir import RunDirectory, begin_attempt, write_json, write_text
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.tracking.build import open_commands
from grpo_exp.tracking.copying import RunCopy
from grpo_exp.tracking.metrics_log import MetricsLog


def begin(path: Path, *words: str) -> tuple[RunDirectory, RunSettings]:
    """Return a run of two steps, and its settings."""
    settings = load.to_settings(load.compose([*words, f"output_dir={path.parent}"]))
    directory = RunDirectory(path)
    path.mkdir(parents=True)
    begin_attempt(directory)
    write_json(directory.config_json, settings.model_dump(mode="json"))
    write_text(directory.config_yaml, "seed: 0\n")
    with MetricsLog(directory.metrics) as log:
        for step in (1, 2):
            log.append(step, {"a": float(step)}, float(step))
    return directory, settings


def trackers(*words: str) -> TrackerSettings:
    return load.load_group("tracker", TrackerSettings, words)


def send(directory: RunDirectory, settings: RunSettings, name: str, *words: str) -> int:
    """Send a run as a sync does, to its own tracker or to another, and return how many records went."""
    copy = RunCopy(directory, settings, name, trackers=trackers(*words) if words else None)
    copy.finish("completed", 9.0)
    return copy.num_records


def mlflow_runs(uri: str, experiment: str) -> list[str]:
    """Return the ids of the runs in an experiment."""
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else [run.info.run_id for run in client.search_runs([found.experiment_id])]


def test_a_run_that_was_sent_elsewhere_goes_on_as_one_run_in_each_place(tmp_path: Path) -> None:
    directory, settings = begin(tmp_path / "out" / "abc-s0", "tracker=mlflow")
    first, second = f"sqlite:///{tmp_path}/out/mlflow.db", f"sqlite:///{tmp_path}/second.db"
    there = ("tracker=mlflow", f"tracker.mlflow.tracking_uri={second}")
    assert send(directory, settings, "mlflow") == 2
    (own,) = mlflow_runs(first, "grpo_exp")
    assert send(directory, settings, "mlflow", *there) == 2
    with MetricsLog(directory.metrics) as log:
        log.append(3, {"a": 3.0}, 3.0)
    assert send(directory, settings, "mlflow") == 1
    assert send(directory, settings, "mlflow", *there) == 1
    assert mlflow_runs(first, "grpo_exp") == [own]
    assert len(mlflow_runs(second, "grpo_exp")) == 1
    # What is shown is where the run's own settings say.
    (command,) = open_commands(settings, directory)
    assert first in command
    assert json.loads(directory.tracker.read_text())["mlflow"]["destination"].startswith(second)


def test_another_experiment_of_the_same_store_gets_a_run_of_its_own(tmp_path: Path) -> None:
    directory, settings = begin(tmp_path / "out" / "abc-s0", "tracker=mlflow")
    uri = f"sqlite:///{tmp_path}/out/mlflow.db"
    words = ("tracker=mlflow", f"tracker.mlflow.tracking_uri={uri}", "tracker.mlflow.experiment=second")
    assert send(directory, settings, "mlflow") == 2
    assert send(directory, settings, "mlflow", *words) == 2
    assert [len(mlflow_runs(uri, name)) for name in ("grpo_exp", "second")] == [1, 1]


def points(folder: Path) -> list[tuple[int, float]]:
    """Return the points of curve `a` in all event files of a folder."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [event for path in sorted(folder.glob("events*")) for event in EventFileLoader(str(path)).Load()]
    return [
        (event.step, value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value)
        for event in events
        for value in event.summary.value
        if value.tag == "a"
    ]


def test_curves_that_a_resume_has_cut_back_are_sent_anew_once(tmp_path: Path) -> None:
    """Step 2 is measured again; what comes then goes on behind it, and the run is still known."""
    directory, settings = begin(tmp_path / "out" / "abc-s0", "tracker=tensorboard")
    assert send(directory, settings, "tensorboard") == 2
    directory.metrics.write_bytes(directory.metrics.read_bytes().splitlines(keepends=True)[0])
    for step, records in ((2, 2), (3, 1)):
        with MetricsLog(directory.metrics) as log:
            log.append(step, {"a": step + 0.5}, 9.0)
        assert send(directory, settings, "tensorboard") == records
    assert points(directory.path / "tensorboard") == [(1, 1.0), (2, 2.5), (3, 3.5)]
    assert len(open_commands(settings, directory)) == 1


@pytest.mark.parametrize(("state_is_lost", "sent"), [(False, 0), (True, 2)])
def test_a_copied_run_holds_each_point_of_tensorboard_once(tmp_path: Path, *, state_is_lost: bool, sent: int) -> None:
    directory, settings = begin(tmp_path / "out" / "abc-s0", "tracker=tensorboard")
    assert send(directory, settings, "tensorboard") == 2
    copied = RunDirectory(tmp_path / "elsewhere")
    shutil.copytree(directory.path, copied.path)
    if state_is_lost:
        copied.tracker.unlink()
    assert send(copied, settings, "tensorboard") == sent
    assert points(copied.path / "tensorboard") == [(1, 1.0), (2, 2.0)]


def test_words_of_sync_are_told_from_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder may be called like the settings, and tags are added with a plus, as for training."""
    begin(tmp_path / "tracker-runs" / "abc-s0", "tracker=none")
    monkeypatch.chdir(tmp_path)
    words = ["tracker-runs/abc-s0", "tracker=tensorboard", "+tracker.tags.team=maths"]
    assert sync.main(words) == 0
    assert "2 records sent" in capsys.readouterr().out
