"""The run directory: the only module that knows the names of the files in it, and what an attempt leaves.

Everything that a report, a resume or a re-run needs lies here; `result.json` is written last.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp import result_file
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.whole_files import write_bytes as write_bytes
from grpo_exp.whole_files import write_json as write_json
from grpo_exp.whole_files import write_text as write_text


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths in one run's folder, and what is read from and written to it as a whole."""

    path: Path

    @property
    def run_id(self) -> str:
        """`<hash8>-s<seed>`, with `-2`, `-3` for runs that were started beside it."""
        return self.path.name

    @property
    def config_json(self) -> Path:
        """The resolved settings, as workers read them."""
        return self.path / "config.json"

    @property
    def config_yaml(self) -> Path:
        """The resolved settings, as people read them."""
        return self.path / "config.yaml"

    @property
    def overrides(self) -> Path:
        """The words that were typed after the command, one a line."""
        return self.path / "overrides.txt"

    @property
    def provenance(self) -> Path:
        """Commit, versions, machine and command."""
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        """All curves, one record a step."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """Health findings, restarts, skipped things."""
        return self.path / "events.jsonl"

    @property
    def tracker(self) -> Path:
        """How far the trackers' copies have come, and the ids to resume the same tracker runs."""
        return self.path / "tracker.json"

    def tracker_lock(self, name: str) -> Path:
        """Held by the process that feeds a tracker."""
        return self.path / f".tracker-{name}.lock"

    @property
    def described(self) -> tuple[Path, ...]:
        """What says what was run, in which order it is written."""
        return (self.config_yaml, self.config_json, self.overrides, self.provenance)

    @property
    def result(self) -> Path:
        """How the run ended."""
        return self.path / "result.json"

    @property
    def curves(self) -> Path:
        """The picture of the curves."""
        return self.path / "plots" / "curves.png"

    @property
    def status(self) -> Path:
        """What the workers are doing just now; gone when they are done."""
        return self.path / "status.json"

    @property
    def completions(self) -> Path:
        """Folder of sampled completions."""
        return self.path / "completions"

    def completion_table(self, kind: str, step: int) -> Path:
        """Completions of a step with their scores: of training (`train`) or of a held-out evaluation (`eval`)."""
        return self.completions / f"{kind}_{step:06}.parquet"

    def completion_tables(self, kind: str) -> dict[int, Path]:
        """Return the tables that there are, by step."""
        found = {path.stem.removeprefix(f"{kind}_"): path for path in self.completions.glob(f"{kind}_*.parquet")}
        steps = [step for step in found if step.isdecimal()]  # what somebody put beside them is none of ours
        return {int(step): found[step] for step in sorted(steps, key=int)}

    @property
    def model(self) -> Path:
        """The trained model, in transformers' format."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """The whole state of the run after some of its steps."""
        return self.path / "checkpoints"

    @property
    def stop_file(self) -> Path:
        """Where it exists, workers stop after the current step."""
        return self.path / "STOP"

    @property
    def lock(self) -> Path:
        """Who owns the run; its modification time is the heartbeat."""
        return self.path / "lock.json"

    @property
    def log_root(self) -> Path:
        """One folder per attempt."""
        return self.path / "logs"

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0 before the first."""
        numbers = [int(entry.name.removeprefix("attempt-")) for entry in self.log_root.glob("attempt-*")]
        return max(numbers, default=0)

    @property
    def attempt_logs(self) -> Path:
        """Folder of the newest attempt's logs."""
        return self.log_root / f"attempt-{self.attempt}"

    @property
    def resume_point(self) -> Path:
        """Which checkpoint the newest attempt goes on from."""
        return self.attempt_logs / "resume.json"

    @property
    def worker_log(self) -> Path:
        """What the worker processes of the newest attempt printed."""
        return self.attempt_logs / "worker.log"

    def stacks(self, rank: int) -> Path:
        """What the threads of a process were doing when it hung; there only where it did."""
        return self.attempt_logs / f"stacks-{rank}.txt"

    @property
    def server(self) -> Path:
        """Where the vLLM server of the run listens, while there is one."""
        return self.path / "vllm_server.json"

    @property
    def server_lock(self) -> Path:
        """Held by the process that looks after that server."""
        return self.path / "vllm_server.lock"

    @property
    def server_place(self) -> Path:
        """Which server the workers of the newest attempt use, and their own port for the weights."""
        return self.attempt_logs / "vllm_place.json"

    @property
    def server_log(self) -> Path:
        """What the run's own vLLM server printed."""
        return self.attempt_logs / "vllm.log"

    @property
    def server_health(self) -> Path:
        """What the vLLM server said when the run hung."""
        return self.attempt_logs / "vllm_server.txt"

    def read_result(self) -> dict[str, Any] | None:
        """Return how the run ended, or None while it has not; a ConfigError where the file holds no result."""
        return result_file.read(self.result) if self.result.is_file() else None

    def read_config(self) -> dict[str, Any]:
        """Return the resolved settings.

        Raises:
            ConfigError: The folder holds no run.
        """
        if not self.config_json.is_file():
            raise ConfigError(f"{self.path}: holds no config.json, so it is not a run folder; give the folder of a run")
        return json.loads(self.config_json.read_text())

    def read_status(self) -> dict[str, Any] | None:
        """Return `{"phase", "done", "total"}` as the workers told it last, or None where they have not or are done."""
        try:
            return json.loads(self.status.read_text())
        except FileNotFoundError:
            return None

    def add_event(self, kind: str, text: str, **fields: Any) -> None:
        """Append one event of the newest attempt."""
        record = {"time": time.time(), "attempt": self.attempt, "kind": kind, "text": text, **fields}
        with self.events.open("a+b") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - 1))
            # A line that a crash cut is ended, so that this one does not run into it.
            start = "\n" if stream.read(1) not in {b"", b"\n"} else ""
            stream.write(f"{start}{json.dumps(record)}\n".encode())


def begin_attempt(directory: RunDirectory, *, keeps: Collection[Path] = ()) -> int:
    """Start a new attempt with a clean folder, and return its number.

    What an earlier one measured moves into its log folder, with a copy of what it was asked to do. The history of
    events, the ids of the tracker's run, the tracker's own files and checkpoints belong to the run and stay.

    Args:
        directory: The run.
        keeps: What was measured and goes on in the new attempt.
    """
    number = directory.attempt + 1
    if number > 1:
        earlier = directory.attempt_logs
        measured = (directory.metrics, directory.result, directory.status, directory.completions)
        for path in (*measured, directory.curves.parent, directory.model):
            if path.exists() and path not in keeps:
                _move_into(earlier, path)
        for path in (directory.config_json, directory.config_yaml, directory.overrides, directory.provenance):
            if path.exists():
                shutil.copy2(path, earlier)
    directory.stop_file.unlink(missing_ok=True)
    (directory.log_root / f"attempt-{number}").mkdir(parents=True)
    return number


def read_events(directory: RunDirectory, *, attempt: int | None = None) -> list[dict[str, Any]]:
    """Return events, oldest first; a line that a crash cut is left out.

    Args:
        directory: The run.
        attempt: Number of the attempt that they belong to; None for those of all.
    """
    if not directory.events.exists():
        return []
    found = [parse_event(line) for line in directory.events.read_bytes().splitlines()]
    return [event for event in found if event is not None and attempt in {None, event["attempt"]}]


def _move_into(folder: Path, path: Path) -> None:
    """Move a file or folder; into a folder that an interrupted move left there, file by file."""
    target = folder / path.name
    if not (path.is_dir() and target.is_dir()):
        path.replace(target)
        return
    for entry in path.iterdir():
        _move_into(target, entry)
    path.rmdir()


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line of `events.jsonl`, or None where a crash cut it."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"attempt", "kind", "text"} <= event.keys() else None


def find_or_create(root: Path, run_id: str, *, resume: bool) -> RunDirectory:
    """Return the directory of a run: the one of this id, or with `resume=False` a new one beside it.

    Raises:
        RunError: The folder cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        if resume:
            path = root / run_id
            path.mkdir(exist_ok=True)
            return RunDirectory(path)
        number = 1
        while True:
            path = root / (run_id if number == 1 else f"{run_id}-{number}")
            try:
                path.mkdir()
                return RunDirectory(path)
            except FileExistsError:
                number += 1
    except OSError as error:
        raise RunError(
            f"{root}: cannot be written ({error.strerror}); choose another folder with output_dir=FOLDER"
        ) from error
