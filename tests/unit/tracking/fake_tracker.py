"""A tracker in memory that can fail, in place of a backend on the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.tracking import copying
from grpo_exp.tracking.metrics_log import MetricsRecord
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus


@dataclass
class Server:
    """What has arrived, and what is to go wrong."""

    confirms_at_finish: bool = False
    forgets: bool = False
    alerts_leave_at_once: bool = True
    destination: str = "here"
    run_id: str = "r1"
    fault: BaseException | None = None
    fails_at: str = ""
    """Name of the call that raises the fault, perhaps with a step: `start`, `log 3`, `finish`."""
    seen: list[str] = field(default_factory=list)
    infos: list[RunInfo] = field(default_factory=list)

    def meet(self, call: str) -> None:
        if self.fault is not None and call == self.fails_at:
            raise self.fault
        self.seen.append(call)

    def taken(self) -> list[str]:
        """Return what has arrived since the last time."""
        seen, self.seen = self.seen, []
        return seen


class FakeTracker:
    title = "Fake"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.destination = server.destination
        self.confirms_at_finish = server.confirms_at_finish
        self.alerts_leave_at_once = server.alerts_leave_at_once

    def start(self, info: RunInfo) -> dict[str, str]:
        self._server.infos.append(info)
        self._server.meet("start")
        return {"id": self._server.run_id}

    def forget(self) -> bool:
        self._server.meet("forget")
        return self._server.forgets

    def log(self, records: Sequence[MetricsRecord]) -> None:
        for record in records:
            self._server.meet(f"log {record['step']}")

    def alert(self, event: Mapping[str, Any]) -> None:
        self._server.meet(f"alert {event['rule']}")

    def add_table(self, table: CompletionsTable) -> None:
        self._server.meet(f"table {table.part} {table.step} {table.columns} {table.rows}")

    def add_file(self, path: Path) -> None:
        self._server.meet(f"file {path.name}")

    def finish(self, status: RunStatus | None, ended: float) -> None:
        self._server.meet(f"finish {status}" if self._server.fails_at != "finish" else "finish")

    def open_command(self, ids: Mapping[str, str]) -> str:
        return "true"


def serve(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Server:
    """Let every tracker that is built talk to one server in memory."""
    server = Server(**options)
    monkeypatch.setattr(copying, "build_tracker", lambda name, settings, directory: FakeTracker(server))
    return server
