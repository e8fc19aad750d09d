"""A run that hangs ends as failed with its reason, the health of its server and the place of the stacks."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grpo_exp import hanging
from grpo_exp.errors import ExitCode
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, read_events, write_json
from unit.run_folder import settings_of

TESTS = Path(__file__).resolve().parents[1]
#: A worker in place that reports two steps and then waits for ever.
HANGING = """
import sys, time
from pathlib import Path
from grpo_exp import hanging, watchdog, worker
from grpo_exp.rundir import RunDirectory
watchdog.GRACE_SECONDS = hanging.GRACE_SECONDS = 0.3

def train(directory, settings, observer):
    observer.on_phase("training", 0, 5)
    for step in (1, 2):
        observer.on_metrics(step, {"train/loss": 0.5})
    the_reward_that_never_returns()

def the_reward_that_never_returns():
    time.sleep(600)

worker._train = train
worker.run_worker(RunDirectory(Path(sys.argv[1])))
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path, "abc-s0", resume=True)
    begin_attempt(directory)
    settings = settings_of(tmp_path, "launch.watchdog.start_seconds=1")
    write_json(directory.config_json, settings.model_dump(mode="json"))
    write_json(directory.provenance, {"time": time.time() - 60})
    return directory


def test_worker_that_hangs_is_found_with_the_stack_that_shows_where(directory: RunDirectory) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(directory.path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == ExitCode.FAILED
    result = directory.read_result()
    assert result is not None
    assert (result["status"], result["exit_code"], result["steps"]) == ("failed", 1, 2)
    assert result["reason"].startswith("no sign of life for 1 s in the first steps (launch.watchdog.start_seconds)")
    assert result["wall_seconds"] == pytest.approx(62, abs=5)  # the attempt began 60 s before
    assert "in the_reward_that_never_returns" in directory.stacks(0).read_text()
    (event,) = [event for event in read_events(directory) if event["kind"] == "watchdog"]
    assert event["text"] == result["reason"]
    assert result["reason"] in done.stderr


def test_run_that_hangs_instead_of_stopping_has_failed(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop, it saved nothing: what its result says and what the command exits with are one."""
    directory.stop_file.touch()
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        hanging.end_hung(directory, settings_of(directory.path), "no step", rank=0)
    result = directory.read_result()
    assert result is not None
    assert (result["status"], result["exit_code"]) == ("failed", 1)


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_health_of_the_server_is_written_down(directory: RunDirectory, tmp_path: Path) -> None:
    """Of the one that this attempt found, wherever the settings would look for it."""
    hanging.note_server_health(directory, settings_of(tmp_path))  # generates without one
    hanging.note_server_health(directory, settings_of(tmp_path, "vllm=server"))  # never found one
    assert not directory.server_health.exists()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = {"server_host": "127.0.0.1", "server_port": server.server_port, "group_port": 21}
        write_json(directory.server_place, place)
        hanging.note_server_health(directory, settings_of(tmp_path, "vllm=server"))
        server.shutdown()
    assert directory.server_health.read_text() == f"http://127.0.0.1:{server.server_port}/health: HTTP 503\n"


def test_front_end_ends_workers_that_wrote_stacks_a_while_ago_and_nothing_since(directory: RunDirectory) -> None:
    long_ago = time.time() - 2 * hanging.SECOND_LINE_SECONDS
    assert hanging.hung_reason(directory) is None
    directory.stacks(0).touch()
    assert hanging.hung_reason(directory) is None  # opened, nothing in it
    directory.stacks(1).write_text("Thread 0x1\n")
    assert hanging.hung_reason(directory) is None  # just now: they may still end by themselves
    for rank in (0, 1):
        os.utime(directory.stacks(rank), (long_ago, long_ago))
    assert "hang inside of a library" in (hanging.hung_reason(directory) or "")
    directory.metrics.write_text(json.dumps({"step": 1}))
    assert hanging.hung_reason(directory) is None  # a step took long, and came to its end
