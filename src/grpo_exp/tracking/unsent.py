"""What lies in a run directory that a tracker has not got yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_exp.rundir import RunDirectory, parse_event
from grpo_exp.tracking.copy_state import CopyState
from grpo_exp.tracking.metrics_log import MetricsRecord, parse_line
from grpo_exp.tracking.tracker import subject_of

#: Lines that are read at once: a few hundred records, so that a long run is not held in memory as a whole.
_CHUNK_BYTES = 512 * 1024
_HASH_DIGITS = 16


@dataclass(frozen=True)
class Chunk:
    """Whole lines that follow what was sent."""

    records: list[MetricsRecord]
    offset: int
    """Where the last of them ends."""
    last_line: str
    """Hash of the last of them."""
    last_length: int
    """Its bytes."""

    def confirm(self, state: CopyState) -> None:
        """Note that the tracker has these lines."""
        state.offset, state.last_line, state.last_length = self.offset, self.last_line, self.last_length


def is_same_file(path: Path, state: CopyState) -> bool:
    """Say whether `metrics.jsonl` still begins with what was sent: a resume cuts it, another attempt begins anew."""
    if state.offset == 0 or not path.exists():
        return True
    with path.open("rb") as stream:
        stream.seek(state.offset - state.last_length)
        return _hash(stream.read(state.last_length)) == state.last_line


def next_chunk(path: Path, state: CopyState) -> Chunk | None:
    """Return the next lines of `metrics.jsonl`, or None where there is no whole one. A line that a crash cut counts."""
    lines = _next_lines(path, state.offset)
    if not lines:
        return None
    records = [record for line in lines if (record := parse_line(line)) is not None]
    return Chunk(records, state.offset + sum(map(len, lines)), _hash(lines[-1]), len(lines[-1]))


def new_findings(directory: RunDirectory, state: CopyState) -> Iterator[dict[str, Any]]:
    """Yield findings that are to be told and were not; each is noted as told when the next one is asked for."""
    while lines := _next_lines(directory.events, state.events_offset):
        for line in lines:
            event = parse_event(line)
            if event is not None and _is_alert(event) and mark_of(event) not in state.rules:
                yield event
                state.rules.append(mark_of(event))
            state.events_offset += len(line)


def mark_of(event: Mapping[str, Any]) -> str:
    """Return what is noted of a finding that was told: a rule speaks of several things, and more seriously later."""
    return "/".join([*subject_of(event), event["kind"], str(event.get("step", 0))])


def _is_alert(event: Mapping[str, Any]) -> bool:
    """Say whether it is a finding that goes further than the events."""
    return "rule" in event and event["kind"] != "info" and event.get("action") != "log"


def new_tables(directory: RunDirectory, state: CopyState) -> list[tuple[Path, str]]:
    """Return tables of completions that were not sent, each with the mark to note for it."""
    found = []
    for path in sorted(directory.completions.glob("*.parquet")):
        facts = path.stat()
        mark = f"{facts.st_size}-{facts.st_mtime_ns}"
        if not path.name.startswith(".") and state.tables.get(path.name) != mark:
            found.append((path, mark))
    return found


def new_files(directory: RunDirectory, state: CopyState, *, at_end: bool) -> list[tuple[Path, str]]:
    """Return files that were not sent as they are now, each with the mark to note for it.

    Args:
        directory: The run.
        state: What was sent.
        at_end: Include those that grow until the run has ended.
    """
    last = (directory.events, directory.curves, directory.result) if at_end else ()
    marked = [(path, _hash(path.read_bytes())) for path in (*directory.described, *last) if path.is_file()]
    return [(path, mark) for path, mark in marked if state.files.get(path.name) != mark]


def has_news(directory: RunDirectory, state: CopyState) -> bool:
    """Say whether a tracker lacks anything that the run directory holds now."""
    return (
        not is_same_file(directory.metrics, state)
        or bool(_next_lines(directory.metrics, state.offset))
        or bool(_next_lines(directory.events, state.events_offset))
        or bool(new_tables(directory, state))
        or bool(new_files(directory, state, at_end=True))
    )


def _next_lines(path: Path, offset: int) -> list[bytes]:
    if not path.exists():
        return []
    with path.open("rb") as stream:
        stream.seek(offset)
        lines = stream.readlines(_CHUNK_BYTES)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
