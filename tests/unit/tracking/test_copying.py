"""A copy goes on where the last one left off, whatever happened to the file, the tracker or the copier."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from grpo_exp.rundir import RunDirectory, begin_attempt, write_json, write_text
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.tracking.copying import RunCopy
from grpo_exp.tracking.metrics_log import MetricsLog
from unit.tracking.fake_tracker import Server, serve

FILES = ["file config.yaml", "file config.json"]
OPENED = ["start", *FILES]


@pytest.fixture(scope="module")
def settings() -> RunSettings:
    return load.to_settings(load.compose(["tracker=mlflow", "tracker.group=g", "+tracker.tags.team=maths"]))


@pytest.fixture
def run(tmp_path: Path, settings: RunSettings) -> RunDirectory:
    directory = RunDirectory(tmp_path / "abc-s0")
    directory.path.mkdir()
    begin_attempt(directory)
    write_json(directory.config_json, settings.model_dump(mode="json"))
    write_text(directory.config_yaml, "seed: 0\n")
    return directory


def write(run: RunDirectory, *steps: int) -> None:
    with MetricsLog(run.metrics) as log:
        for step in steps:
            log.append(step, {"a": step}, 0.0)


def copy_of(run: RunDirectory, settings: RunSettings) -> RunCopy:
    """Return a new copy: what a copier that is started anew has."""
    return RunCopy(run, settings, "mlflow")


def sent(run: RunDirectory, settings: RunSettings, server: Server) -> list[str]:
    """Return what a new copier sends, without the opening."""
    copy_of(run, settings).send_new()
    seen = server.taken()
    assert seen[: len(OPENED) - len(FILES)] == ["start"]
    return seen[1:]


def test_each_record_is_sent_once_over_all_copiers(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    copy = copy_of(run, settings)
    copy.send_new()  # nothing is measured yet
    assert server.taken() == OPENED
    write(run, 1, 2)
    copy.send_new()
    write(run, 3)
    copy.send_new()
    assert server.taken() == ["log 1", "log 2", "log 3"]
    write(run, 4)
    assert sent(run, settings, server) == ["log 4"]
    assert sent(run, settings, server) == []
    assert server.infos[0].tags == {
        "name": settings.name, "seed": "0", "algorithm": "grpo", "group": "g", "team": "maths"
    }  # fmt: skip
    assert [info.previous_ids for info in server.infos] == [{}, {"id": "r1"}, {"id": "r1"}]


def test_a_line_that_is_being_written_waits_and_one_that_a_crash_cut_is_passed(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    write(run, 1, 2)
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-5])
    copy = copy_of(run, settings)
    copy.send_new()
    assert server.taken() == [*OPENED, "log 1"]
    run.metrics.write_bytes(whole[:-5] + b"\n")
    write(run, 3)
    copy.send_new()
    assert server.taken() == ["log 3"]


@pytest.mark.parametrize(
    ("forgets", "expected"),
    [(False, ["forget", "log 1", "log 2", "log 3"]), (True, ["forget", *FILES, "log 1", "log 2", "log 3"])],
)
def test_a_file_that_was_cut_and_went_on_is_sent_again(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch, *, forgets: bool, expected: list[str]
) -> None:
    """A resume cuts metrics.jsonl back to step 2 of 4 and goes on with other lines, as many bytes as before."""
    server = serve(monkeypatch, forgets=forgets)
    write(run, 1, 2, 4, 5)
    sent(run, settings, server)
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    run.metrics.write_bytes(b"".join(lines[:2]))
    write(run, 3)
    assert sent(run, settings, server) == expected
    write(run, 4)
    assert sent(run, settings, server) == ["log 4"]


def test_another_attempt_begins_anew_in_the_same_tracker_run(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt is further than the first when it is looked at: only the bytes tell."""
    server = serve(monkeypatch)
    write(run, 1)
    sent(run, settings, server)
    begin_attempt(run)
    with MetricsLog(run.metrics) as log:
        for step in (1, 2):
            log.append(step, {"a": 5.0}, 7.0)
    copy_of(run, settings).send_new()
    assert server.taken() == ["start", "forget", "log 1", "log 2"]
    assert server.infos[-1].previous_ids == {"id": "r1"}


@pytest.mark.parametrize("change", [{"destination": "there"}, {"run_id": "r2"}], ids=["destination", "run is gone"])
def test_another_destination_gets_everything(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    server = serve(monkeypatch)
    write(run, 1)
    sent(run, settings, server)
    vars(server).update(change)
    assert sent(run, settings, server) == [*FILES, "log 1"]
    assert sent(run, settings, server) == []


@pytest.mark.parametrize(("confirms_at_finish", "again"), [(False, ["log 2"]), (True, ["log 1", "log 2"])])
def test_after_a_fault_what_is_not_known_to_have_arrived_is_sent_again(
    run: RunDirectory,
    settings: RunSettings,
    monkeypatch: pytest.MonkeyPatch,
    *,
    confirms_at_finish: bool,
    again: list[str],
) -> None:
    server = serve(monkeypatch, confirms_at_finish=confirms_at_finish, fails_at="log 2", fault=OSError("down"))
    copy = copy_of(run, settings)
    write(run, 1)
    copy.send_new()
    write(run, 2)
    with pytest.raises(OSError, match="down"):
        copy.send_new()
    copy.abandon()
    server.taken()
    server.fault = None
    copy.send_new()
    assert [call for call in server.taken() if call.startswith("log")] == again


def test_the_end_sends_what_grew_until_then_and_the_status(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    write(run, 1)
    run.add_event("note", "something")
    copy = copy_of(run, settings)
    assert copy.lacks("completed")
    copy.finish("completed", 9.0)
    assert server.taken() == [*OPENED, "log 1", "file events.jsonl", "finish completed"]
    assert not copy_of(run, settings).lacks("completed")
    assert copy_of(run, settings).lacks("failed")
    write_json(run.result, {"status": "completed"})
    assert copy_of(run, settings).lacks("completed")
    copy_of(run, settings).finish("completed", 9.0)
    assert server.taken() == ["start", "file result.json", "finish completed"]


def test_a_rule_is_told_once_however_often_it_speaks_and_whatever_fails(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch, confirms_at_finish=True)
    for rule in ("dead_groups", "truncated", "dead_groups"):
        run.add_event("warning", "text", rule=rule, step=1)
    run.add_event("note", "no rule")
    assert sent(run, settings, server) == [*FILES, "alert dead_groups", "alert truncated"]
    run.add_event("critical", "text", rule="not_finite", step=2)
    # Nothing was confirmed by a finish, so another copier sends the files again, and none of the alerts.
    assert sent(run, settings, server) == [*FILES, "alert not_finite"]


def finding(run: RunDirectory, kind: str, rule: str, **fields: object) -> None:
    run.add_event(kind, "text", **{"rule": rule, "action": "alert", "step": 1, **fields})


def test_each_finding_is_told_whatever_else_its_rule_has_said(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another subject, more seriously, and once more long after; what the settings only log stays in the events."""
    server = serve(monkeypatch)
    finding(run, "info", "constant_component", subject="format")
    finding(run, "warning", "constant_component", subject="format", step=5)
    finding(run, "warning", "constant_component", subject="length", step=5)
    finding(run, "warning", "constant_component", subject="format", step=5)  # an attempt from the beginning
    finding(run, "warning", "gradient_spike", step=7)
    finding(run, "warning", "gradient_spike", step=207)
    finding(run, "warning", "truncation", action="log")
    alerts = [call for call in sent(run, settings, server) if call.startswith("alert")]
    assert alerts == ["alert constant_component"] * 2 + ["alert gradient_spike"] * 2


def test_a_finding_that_only_stands_in_a_file_comes_again_when_that_is_lost(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B offline: a kill of all processes cuts its file, and the next attempt writes another one."""
    server = serve(monkeypatch, confirms_at_finish=True, alerts_leave_at_once=False)
    finding(run, "warning", "truncation")
    assert sent(run, settings, server) == [*FILES, "alert truncation"]
    assert sent(run, settings, server) == [*FILES, "alert truncation"]  # nobody came to finish the first one
    copy_of(run, settings).finish("completed", 9.0)
    server.taken()
    assert sent(run, settings, server) == []


@pytest.mark.parametrize("content", [b"", b"no parquet", b"PAR1" + bytes(100)], ids=["empty", "text", "damaged"])
def test_a_damaged_table_holds_nothing_else_up(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    server = serve(monkeypatch)
    write(run, 1)
    run.completions.mkdir()
    damaged = run.completions / "train_000010.parquet"
    damaged.write_bytes(content)
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), run.completions / "train_000020.parquet")
    copy = copy_of(run, settings)
    copy.finish("completed", 9.0)
    assert server.taken() == [*OPENED, "log 1", "table train 20 ['a'] [[1]]", "finish completed"]
    assert copy.unreadable == ["train_000010.parquet"]
    assert not copy_of(run, settings).lacks("completed")
    pyarrow.parquet.write_table(pyarrow.table({"a": [2]}), damaged)  # somebody copies it once more
    assert sent(run, settings, server) == ["table train 10 ['a'] [[2]]"]


def test_each_table_is_sent_once_and_again_when_it_has_changed(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    run.completions.mkdir()
    path = run.completions / "train_000010.parquet"

    def save(advantage: float) -> None:
        pyarrow.parquet.write_table(pyarrow.table({"prompt": ["1+1"], "advantage": [advantage]}), path)

    save(0.5)
    (run.completions / ".train_000020.parquet").write_bytes(b"half written")
    assert sent(run, settings, server) == [*FILES, "table train 10 ['prompt', 'advantage'] [['1+1', 0.5]]"]
    assert sent(run, settings, server) == []
    save(float("nan"))
    os.utime(path, ns=(1, 1))
    assert sent(run, settings, server) == ["table train 10 ['prompt', 'advantage'] [['1+1', None]]"]


def test_a_password_is_shown_to_no_tracker(
    run: RunDirectory, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(monkeypatch)
    assert settings.tracker.mlflow is not None
    mlflow = settings.tracker.mlflow.model_copy(update={"tracking_uri": "https://ann:secret@example.org"})
    trackers = settings.tracker.model_copy(update={"mlflow": mlflow})
    RunCopy(run, settings, "mlflow", trackers=trackers).send_new()
    assert server.infos[0].config["tracker"]["mlflow"]["tracking_uri"] == "https://ann:***@example.org"
