"""The folder of a run that generates with a server, and a stub in vLLM's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stub_server
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory, begin_attempt, write_json
from grpo_exp.settings.run import RunSettings
from unit.run_folder import settings_of

STUB = f"vllm.serve_command=[{sys.executable},{stub_server.__file__}]"


def served_settings(folder: Path, *words: str) -> RunSettings:
    """Return settings of a run with a server, which is the stub where this package starts one."""
    model = folder / "the model"
    model.mkdir(exist_ok=True)
    return settings_of(
        folder, "vllm=server", "model=local", f"model.path='{model}'", "launch=single",
        "trainer.max_completion_length=20", "vllm.server_timeout_seconds=20", STUB, *words,
    )  # fmt: skip


def begun_run(folder: Path, settings: RunSettings) -> RunDirectory:
    """Return the folder of a run whose first attempt has just begun."""
    directory = RunDirectory(folder / "run")
    directory.path.mkdir()
    begin_attempt(directory)
    write_json(directory.config_json, settings.model_dump(mode="json"))
    return directory


@contextmanager
def alive(path: Path) -> Iterator[None]:
    """Hold a lock inside, as the process does that it stands for."""
    lock = Lock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


class Stub:
    """How the stub behaves, and how it was called.

    Args:
        record: File for its calls.
        patch: Sets its environment.
    """

    def __init__(self, record: Path, patch: pytest.MonkeyPatch) -> None:
        self._record = record
        self._patch = patch
        self.behave()

    def behave(self, **behaviour: Any) -> None:
        """Say what the next one does."""
        self._patch.setenv("STUB_VLLM", json.dumps({"record": str(self._record), **behaviour}))

    def calls(self) -> list[dict[str, Any]]:
        """Return how it was called, each time."""
        return [json.loads(line) for line in self._record.read_text().splitlines()] if self._record.exists() else []


def is_alive(pid: int) -> bool:
    """Say whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
