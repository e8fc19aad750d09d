"""Trackers have exactly what metrics.jsonl has, over kills, resumes and outages, and never hold up a run.

The trainer is a fake that writes through the real observer; copiers, servers and files are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.commands import sync as sync_command
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory, read_events, write_json
from grpo_exp.tracking.metrics_log import read_metrics
from grpo_exp.tracking.names import Backend, to_backend_name
from integration.tracked_runs import (
    STARTED,
    begin,
    copier_processes,
    points,
    start,
    steps_written,
    train,
    wait_until,
)
from integration.tracker_servers import MlflowServer, black_hole, free_port, postgresql, small_disk
from unit.tracking.wandb_files import history, read

# MLflow 3.17 uses a loader that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture(autouse=True)
def _no_trainer_is_left() -> Iterator[None]:
    yield
    for trainer in STARTED:
        trainer.kill()
        trainer.wait()
    STARTED.clear()


def sync(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_exp", "sync", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def state(run: RunDirectory, name: str) -> dict[str, Any]:
    """Return what `tracker.json` says of a tracker, as in an empty state where it says nothing yet."""
    found = json.loads(run.tracker.read_text()) if run.tracker.exists() else {}
    return found.get(name, {"offset": 0, "status": None})


def events(run: RunDirectory, kind: str) -> list[str]:
    return [event["text"] for event in read_events(run) if event["kind"] == kind]


def expected(run: RunDirectory, backend: Backend) -> dict[str, dict[int, float]]:
    return {to_backend_name(name, backend): curve for name, curve in points(run).items()}


# --------------------------------------------------------------------------------- what a tracker holds, as a curve


def tensorboard_curves(run: RunDirectory) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    return {tag: {e.step: e.value for e in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}


def wandb_curves(run: RunDirectory) -> dict[str, dict[int, float]]:
    curves: dict[str, dict[int, float]] = {}
    for records in read(run.path):
        for item in history(records):
            step = int(item.pop("train/global_step"))
            for name, value in item.items():
                curves.setdefault(name, {})[step] = value
    return curves


def mlflow_runs(uri: str) -> list[Any]:
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri)
    return [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]


def mlflow_curves(uri: str, run_id: str) -> dict[str, dict[int, float]]:
    from mlflow.tracking.client import MlflowClient

    client = MlflowClient(uri)
    curves = {}
    for name in client.get_run(run_id).data.metrics:
        history = sorted(client.get_metric_history(run_id, name), key=lambda point: point.timestamp)
        curves[name] = {point.step: point.value for point in history}  # the last value of a step
    return curves


# ------------------------------------------------------------------------------------------ a few seconds


def test_over_a_kill_and_a_second_attempt_there_is_one_copy_and_no_process_is_left(tmp_path: Path) -> None:
    run = begin(tmp_path, "tracker=tensorboard")
    trainer = start(run, 1, 500, seconds=0.05)
    wait_until(lambda: steps_written(run) >= 5 and state(run, "tensorboard")["offset"] > 0)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    wait_until(lambda: not copier_processes(run))
    assert state(run, "tensorboard")["status"] == "killed"
    again = begin(tmp_path, "tracker=tensorboard")
    assert again.path == run.path
    assert again.attempt == 2
    train(again, 1, 8)
    assert copier_processes(run) == []
    assert state(run, "tensorboard")["status"] == "completed"
    # TensorBoard's floats have 32 bits: 24 of them for the digits, so 2^-24 = 6e-8 of the value at most is lost.
    found = tensorboard_curves(run)
    wanted = expected(run, "tensorboard")
    assert found.keys() == wanted.keys()
    for name, curve in wanted.items():
        assert found[name] == pytest.approx(curve, rel=6e-8)
        assert len(curve) == (6 if name == "train/grad_norm" else 8)  # not finite at steps 3 and 7
    assert events(run, "tracker") == []


def test_ctrl_c_in_the_terminal_leaves_the_copier_and_a_second_one_ends_it(tmp_path: Path) -> None:
    """The copier has a session of its own; one signal to it alone means nothing, two end it, and the run goes on."""
    run = begin(tmp_path, "tracker=tensorboard")
    trainer = start(run, 1, 60, seconds=0.05)
    wait_until(lambda: state(run, "tensorboard")["offset"] > 0)
    [copier] = copier_processes(run)
    assert os.getsid(copier) == copier
    os.kill(copier, signal.SIGINT)
    offset = state(run, "tensorboard")["offset"]
    wait_until(lambda: state(run, "tensorboard")["offset"] > offset)
    os.kill(copier, signal.SIGTERM)
    assert trainer.wait(60) == 0
    [lost] = events(run, "tracker")
    assert "ended by itself with exit code 1" in lost
    assert f"grpo-exp sync {run.path}" in lost
    done = sync(run.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert tensorboard_curves(run).keys() == expected(run, "tensorboard").keys()
    assert len(tensorboard_curves(run)["train/loss"]) == 60
    again = sync(run.path)
    assert again.stdout == f"{run.path}: tensorboard: has everything\n"


def test_sync_sends_to_other_trackers_and_refuses_what_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin(tmp_path, "tracker=none")
    train(run, 1, 3)
    assert not run.tracker.exists()
    folder = str(run.path)
    assert sync_command.main([folder]) == 0
    assert "tracks nowhere" in capsys.readouterr().out
    words = ["tracker=tensorboard", f"tracker.tensorboard.directory={tmp_path / 'tb'}"]
    assert sync_command.main([folder, *words]) == 0
    assert capsys.readouterr().out == f"{folder}: tensorboard: 3 records sent, status completed\n"
    assert list((tmp_path / "tb" / run.path.parent.name / run.run_id).glob("events.out.tfevents.*"))
    for words, text in (
        ([str(tmp_path)], "is not a run folder"),
        ([folder, "tracker.wandb.mode=online"], "says how and not where"),
        (["tracker=mlflow"], "Usage"),
        ([folder, "seed=1"], "Usage"),
    ):
        with pytest.raises(ConfigError, match=text):
            sync_command.main(words)


# --------------------------------------------------------------------------------------------------- minutes


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MlflowServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        is_sqlite = request.param == "sqlite"
        store = f"sqlite:///{folder}/mlflow.db" if is_sqlite else stack.enter_context(postgresql())
        found = MlflowServer(folder, store)
        stack.callback(found.stop)
        found.start()
        yield found


@pytest.mark.long
def test_all_trackers_hold_exactly_the_metrics_over_a_kill_another_attempt_and_a_resume(
    server: MlflowServer, tmp_path: Path
) -> None:
    words = ("tracker=[mlflow,wandb,tensorboard]", f"tracker.mlflow.tracking_uri={server.uri}",
             "tracker.wandb.mode=offline", "tracker.group=g", "+tracker.tags.team=maths")  # fmt: skip
    run = begin(tmp_path / "out", *words)
    trainer = start(run, 1, 5000, seconds=0.05)
    wait_until(lambda: state(run, "mlflow")["offset"] > 2000, seconds=90)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    wait_until(lambda: not copier_processes(run))
    [killed] = mlflow_runs(server.uri)
    assert (killed.info.status, killed.data.tags["grpo_exp.status"]) == ("KILLED", "killed")
    assert steps_written(run) > 5
    ended_at = max(record["step"] for record in read_metrics(run.metrics))
    # Another attempt from the beginning, beyond where the first one was.
    begin(tmp_path / "out", *words)
    train(run, 1, ended_at + 10, seconds=0.01)
    # A resume in the way of a checkpoint: back to its third step, and on from there in the same file.
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(lines[:3]))
    (run.log_root / "attempt-3").mkdir()
    run.result.unlink()
    train(run, 4, ended_at + 10, seconds=0.01)
    assert events(run, "tracker") == []
    [found] = mlflow_runs(server.uri)
    assert found.info.run_id == killed.info.run_id == state(run, "mlflow")["ids"]["run_id"]
    assert found.info.status == "FINISHED"
    assert (found.data.tags["group"], found.data.tags["team"], found.data.params["seed"]) == ("g", "maths", "0")
    assert mlflow_curves(server.uri, found.info.run_id) == expected(run, "mlflow")
    assert wandb_curves(run) == expected(run, "wandb")
    ids = {r["run"]["run_id"] for records in read(run.path) for r in records if r["type"] == "run"}
    assert ids == {state(run, "wandb")["ids"]["id"]}
    assert [records[-1]["exit"]["exit_code"] for records in read(run.path)] == [255, 0, 0]
    for name, curve in expected(run, "tensorboard").items():
        assert tensorboard_curves(run)[name] == pytest.approx(curve, rel=6e-8)
    before = run.tracker.read_text()
    done = sync(run.path)  # result.json was written after the trackers had ended
    assert done.returncode == 0, done.stdout
    assert run.tracker.read_text() != before
    assert sync(run.path).stdout.count("has everything") == 3
    assert mlflow_curves(server.uri, found.info.run_id) == expected(run, "mlflow")
    assert len(mlflow_runs(server.uri)) == 1


def training_seconds(run: RunDirectory) -> float:
    """Return the time from the first record to the last."""
    times = [record["time"] for record in read_metrics(run.metrics)]
    return times[-1] - times[0]


@pytest.mark.long
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_server_that_is_away_for_a_while_costs_no_time_and_after_sync_no_metric(
    server: MlflowServer, tmp_path: Path
) -> None:
    plain = begin(tmp_path / "plain", "tracker=none")
    train(plain, 1, 40, seconds=0.5)
    run = begin(tmp_path / "out", f"tracker.mlflow.tracking_uri={server.uri}")
    trainer = start(run, 1, 40, seconds=0.5)
    wait_until(lambda: state(run, "mlflow")["offset"] > 0)
    server.stop()
    assert trainer.wait(120) == 0
    assert training_seconds(run) <= 1.05 * training_seconds(plain)
    [warning] = events(run, "tracker")
    assert "MLflow does not get the curves" in warning
    assert state(run, "mlflow")["status"] is None
    failed = sync(run.path)
    assert failed.returncode == 1
    assert "mlflow: " in failed.stdout
    server.start()
    done = sync(run.path)
    assert done.returncode == 0, done.stdout
    [found] = mlflow_runs(server.uri)
    assert found.info.status == "FINISHED"
    assert mlflow_curves(server.uri, found.info.run_id) == expected(run, "mlflow")
    assert len(points(run)["train/loss"]) == 40


@pytest.mark.long
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_server_that_comes_back_while_the_run_goes_on_gets_all_without_sync(
    server: MlflowServer, tmp_path: Path
) -> None:
    server.stop()
    run = begin(tmp_path / "out", f"tracker.mlflow.tracking_uri={server.uri}")
    trainer = start(run, 1, 5000, seconds=0.2)
    wait_until(lambda: bool(events(run, "tracker")))
    server.start()
    wait_until(lambda: bool(events(run, "note")))
    trainer.kill()
    trainer.wait()
    wait_until(lambda: not copier_processes(run))
    assert len(events(run, "tracker")) == 1
    assert events(run, "note") == ["MLflow gets the curves again, also those that it had missed"]
    [found] = mlflow_runs(server.uri)
    assert mlflow_curves(server.uri, found.info.run_id) == expected(run, "mlflow")


@pytest.mark.long
@pytest.mark.parametrize("uri", ["refused", "black hole", "ftp://nowhere/x", "postgresql://a@127.0.0.1:1/x"])
def test_a_run_completes_where_the_tracker_never_answers(uri: str, tmp_path: Path) -> None:
    with black_hole() as hole:
        address = {"refused": f"http://127.0.0.1:{free_port()}", "black hole": hole}.get(uri, uri)
        run = begin(tmp_path, f"tracker.mlflow.tracking_uri={address}", "tracker.finish_timeout_seconds=10")
        began = time.monotonic()
        train(run, 1, 20, seconds=0.25)
        # 5 s of steps, at most 10 s for the end, and the start of Python.
        assert time.monotonic() - began < 5 + 10 + 5
    result = run.read_result()
    assert result is not None
    assert result["status"] == "completed"
    assert len(events(run, "tracker")) == 1
    assert copier_processes(run) == []


@pytest.mark.long
def test_a_run_completes_on_a_full_disk_of_wandb_and_sync_makes_good(tmp_path: Path) -> None:
    """One record is about 200 bytes, so a thousand of them do not fit beside the logs into 96 KiB."""
    run = begin(tmp_path, "tracker=wandb", "tracker.wandb.mode=offline", "tracker.finish_timeout_seconds=15")
    with small_disk(run.path / "wandb", "96k"):
        train(run, 1, 1000, seconds=0.005)
        [warning] = events(run, "tracker")
        assert "W&B does not get the curves" in warning
        assert "make room on the disk" in warning or "No space left" in warning
    result = run.read_result()
    assert result is not None
    assert result["status"] == "completed"
    done = sync(run.path)
    assert done.returncode == 0, done.stdout
    assert wandb_curves(run) == expected(run, "wandb")


@pytest.mark.long
def test_a_login_that_is_missing_is_one_warning(tmp_path: Path) -> None:
    run = begin(tmp_path, "tracker=wandb", "tracker.wandb.mode=online")
    train(run, 1, 10, seconds=0.1)
    [warning] = events(run, "tracker")
    assert "W&B does not get the curves" in warning
    assert copier_processes(run) == []


@pytest.mark.long
def test_two_runs_in_one_process_are_two_tracker_runs_and_the_failed_one_is_marked(tmp_path: Path) -> None:
    runs = [
        begin(tmp_path, f"seed={seed}", f"tracker.mlflow.tracking_uri=sqlite:///{tmp_path}/m.db") for seed in (0, 1)
    ]
    code = """
import sys
from pathlib import Path
from grpo_exp.rundir import RunDirectory
from integration.fake_trainer import run
for folder, status in zip(sys.argv[1:], ("failed", "completed"), strict=True):
    run(RunDirectory(Path(folder)), range(1, 6), seconds=0.1, status=status)
"""
    subprocess.run([sys.executable, "-c", code, *(str(run.path) for run in runs)], check=True, cwd="tests")
    uri = f"sqlite:///{tmp_path}/m.db"
    found = {run.info.run_id: run for run in mlflow_runs(uri)}
    assert len(found) == 2
    for run, status in zip(runs, ("FAILED", "FINISHED"), strict=True):
        run_id = state(run, "mlflow")["ids"]["run_id"]
        assert found[run_id].info.status == status
        assert mlflow_curves(uri, run_id) == expected(run, "mlflow")


@pytest.mark.long
def test_sync_leaves_a_run_that_is_fed_alone_and_sets_right_how_a_lost_one_ended(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/m.db"
    run = begin(tmp_path, f"tracker.mlflow.tracking_uri={uri}")
    trainer = start(run, 1, 5000, seconds=0.1)
    wait_until(lambda: state(run, "mlflow")["offset"] > 0)
    busy = sync(run.path)
    assert busy.returncode == 1
    assert "a process feeds it just now" in busy.stdout
    trainer.kill()
    trainer.wait()
    wait_until(lambda: not copier_processes(run))
    assert mlflow_runs(uri)[0].data.tags["grpo_exp.status"] == "killed"
    # The front end, which saw its workers die, writes this.
    write_json(run.result, {"status": "failed", "exit_code": 1, "reason": "a worker was ended by SIGKILL", "steps": 3})
    assert sync(run.path).returncode == 0
    [found] = mlflow_runs(uri)
    assert (found.info.status, found.data.tags["grpo_exp.status"]) == ("FAILED", "failed")
