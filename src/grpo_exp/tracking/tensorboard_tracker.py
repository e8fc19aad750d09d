"""Copy a run to TensorBoard's event files. Needs the package `tensorboard` alone, no torch and no TensorFlow."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.tracking.metrics_log import MetricsRecord, to_record
from grpo_exp.tracking.names import to_backend_name
from grpo_exp.tracking.tables import CompletionsTable
from grpo_exp.tracking.tracker import RunInfo, RunStatus, subject_of

if TYPE_CHECKING:
    from tensorboard.summary.writer.record_writer import RecordWriter

_PREFIX = "events.out.tfevents."
_BEGUN = "begun"
_STRING_TYPE = 7  # DT_STRING of TensorFlow's types.proto
# The messages are made when TensorBoard's modules are loaded, so pyright does not see them.

#: Files that are shown as text.
_SHOWN_FILES = {"config.yaml", "overrides.txt", "provenance.json", "result.json"}


class TensorboardRunTracker:
    """Event files in a folder of the run's own: one more file each time that the copy goes on.

    TensorBoard keeps 32-bit floats, and shows no tables.

    Args:
        folder: Where the files go; nobody else writes into it.
        shown: Folder that the command shows: a parent of this one, with the runs to compare.
        moves_with_run: Whether the folder lies in the run's own, so that a copy of the run has its event files, too.
    """

    title = "TensorBoard"
    confirms_at_finish = False
    alerts_leave_at_once = True

    def __init__(self, folder: Path, *, shown: Path, moves_with_run: bool = False) -> None:
        self._folder = folder.absolute()
        self._shown = shown.absolute()
        self._writer: RecordWriter | None = None
        self._tags = ""
        self._moves_with_run = moves_with_run
        self.destination = f"<run folder>/{folder.name}" if moves_with_run else str(self._folder)

    def start(self, info: RunInfo) -> dict[str, str]:
        """Begin one more event file; the settings follow as files."""
        begun = info.previous_ids.get(_BEGUN)
        if begun is None or not any(self._folder.glob(f"{_PREFIX}*")):
            begun = str(time.time())
        tags = "\n".join(f"- {key}: {value}" for key, value in info.tags.items())
        self._tags = f"{info.title}\n\n{tags}"
        if info.is_fresh and self._moves_with_run:
            self._delete_files()  # all of it comes now: tracker.json was lost, or is of an earlier version
        self._begin_file()
        return {_BEGUN: begun}

    def forget(self) -> bool:
        """Delete the event files: TensorBoard would show both the old points of a step and the new ones."""
        self._close()
        self._delete_files()
        self._begin_file()
        return True

    def log(self, records: Sequence[MetricsRecord]) -> None:
        """Copy records."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        for given in records:
            record = to_record(given["step"], given["metrics"], given["time"])
            values = [
                Summary.Value(tag=to_backend_name(name, "tensorboard"), simple_value=value)
                for name, value in record["metrics"].items()
            ]
            self._write_summary(Summary(value=values), step=record["step"], time=record["time"])
        self._flush()

    def alert(self, event: Mapping[str, Any]) -> None:
        """Copy a finding as text `health/<rule>`."""
        text = f"**{event['kind']}**: {event['text']}"
        name = to_backend_name(f"health/{'/'.join(subject_of(event))}", "tensorboard")
        self._write_text(name, text, step=event.get("step", 0))

    def add_table(self, table: CompletionsTable) -> None:
        """Leave it: TensorBoard has no tables."""

    def add_file(self, path: Path) -> None:
        """Copy settings and result as text; TensorBoard keeps no other files."""
        if path.name in _SHOWN_FILES:
            lines = "".join(f"    {line}\n" for line in path.read_text().splitlines())
            self._write_text(f"run/{path.stem}", lines)

    def finish(self, status: RunStatus | None, ended: float) -> None:
        """Write how the run ended, and close the file."""
        if self._writer is None:
            return
        if status is not None:
            self._write_text("run/status", status)
        self._close()

    def open_command(self, ids: Mapping[str, str]) -> str:
        """Return the command that serves the folder of all runs."""
        return shlex.join([sys.executable, "-m", "tensorboard.main", "--logdir", str(self._shown)])

    def _delete_files(self) -> None:
        for path in self._folder.glob(f"{_PREFIX}*"):
            path.unlink()

    def _begin_file(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._folder.mkdir(parents=True, exist_ok=True)
        # By time: TensorBoard reads the files of a folder in the order of their names.
        path = self._folder / f"{_PREFIX}{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._writer = RecordWriter(path.open("xb"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._write_text("run/tags", self._tags)

    def _write_text(self, tag: str, text: str, *, step: int = 0) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]

        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=_STRING_TYPE, string_val=[text.encode()])
        value = Summary.Value(tag=tag, metadata=plugin, tensor=tensor)
        self._write_summary(Summary(value=[value]), step=step, time=time.time())
        self._flush()

    def _write_summary(self, summary: Any, *, step: int, time: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        self._write(Event(wall_time=time, step=step, summary=summary))

    def _write(self, event: Any) -> None:
        assert self._writer is not None
        self._writer.write(event.SerializeToString())

    def _flush(self) -> None:
        assert self._writer is not None
        self._writer.flush()

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
