"""The sweep's folder: the manifest, the settings of its runs, and what is known about the sweep as a whole.

Several processes may write at the same time: each takes the lock, reads, and puts a whole new file in place of the old.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.rundir import RunDirectory, write_json, write_text
from grpo_exp.settings.run import RunSettings
from grpo_exp.sweeps.files import holding, parse_object, read_object, read_objects

if TYPE_CHECKING:  # it composes; what only reads a sweep need not
    from grpo_exp.sweeps.planning import Point

#: What helps where lines of the manifest are lost: runs are found by their settings.
_MANIFEST_FIX = "put it back, or move it and settings.jsonl away and give the multirun command again: it finds the runs"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of `manifest.jsonl`: one run."""

    index: int
    """Number of the run in the sweep, from 0; stays the same when the sweep grows."""
    overrides: tuple[str, ...]
    """What a user would type for the run alone."""
    values: Mapping[str, Any]
    """What it has on the axes."""
    point_id: str
    """Hash of the resolved settings without the seed and without where things lie: the seeds of a point share it."""
    seed: int
    run_directory: str
    """Its folder, below the sweep's."""
    max_steps: int | None = None
    """Steps that the newest call asks for: a run that is done with fewer is made longer. None asks for no more."""

    def is_done(self, result: Mapping[str, Any] | None) -> bool:
        """Say whether a run with this result has completed all the steps that are asked for."""
        if result is None or result["exit_code"] != ExitCode.COMPLETED:
            return False
        return self.max_steps is None or result["steps"] >= self.max_steps


@dataclass(frozen=True, slots=True)
class SweepDirectory:
    """The files of a sweep. Runs lie beside them, each in the folder that its line of the manifest names."""

    path: Path

    @property
    def manifest(self) -> Path:
        """One line per run."""
        return self.path / "manifest.jsonl"

    @property
    def settings(self) -> Path:
        """Resolved settings of the runs, in the order of the manifest."""
        return self.path / "settings.jsonl"

    @property
    def about(self) -> Path:
        """The calls that made the sweep, and what starts its runs."""
        return self.path / "sweep.json"

    @property
    def cancelled(self) -> Path:
        """Run directories that are not started until the sweep is resumed."""
        return self.path / "cancelled.json"

    @property
    def lock(self) -> Path:
        """Held while one of the files above is written."""
        return self.path / "manifest.lock"

    @property
    def submission(self) -> Path:
        """Held while runs are chosen and handed to a scheduler."""
        return self.path / "submission.lock"

    @property
    def summary(self) -> Path:
        """The table that `grpo-exp report` writes."""
        return self.path / "summary.csv"

    def claim(self, entry: Entry) -> Path:
        """Lock of the process that decides about a run, and runs it."""
        return self.path / ".claims" / f"{entry.run_directory}.json"

    def log(self, entry: Entry) -> Path:
        """What the process that ran a point here printed."""
        return self.path / "logs" / f"{entry.run_directory}.log"

    def refusal(self, entry: Entry) -> Path:
        """Why a run ended before its folder could say so; gone when it is started again."""
        return self.path / "refused" / f"{entry.run_directory}.json"

    def run(self, entry: Entry) -> RunDirectory:
        """Return the folder of a run; it exists once the run was started."""
        return RunDirectory(self.path / entry.run_directory)

    def read_entries(self) -> list[Entry]:
        """Return the runs of the sweep.

        Raises:
            ConfigError: The folder holds no sweep, or its manifest was changed by something else.
        """
        if not self.manifest.is_file():
            raise ConfigError(f"{self.path}: holds no manifest.jsonl, so it is no sweep; give the folder of a sweep")
        entries = [_to_entry(self.manifest, record) for record in read_objects(self.manifest, _MANIFEST_FIX)]
        if [entry.index for entry in entries] != list(range(len(entries))):
            raise ConfigError(
                f"{self.manifest}: its runs are not numbered from 0, so lines are missing; {_MANIFEST_FIX}"
            )
        return entries

    def read_entry(self, index: int) -> Entry:
        """Return one run.

        Raises:
            ConfigError: There is no run of this number.
        """
        entries = self.read_entries()
        if not 0 <= index < len(entries):
            raise ConfigError(f"{index}: is no index of {self.path}, which holds 0 to {len(entries) - 1}; give one")
        return entries[index]

    def read_settings(self, entry: Entry) -> dict[str, Any]:
        """Return the resolved settings of a run, as planned.

        Raises:
            ConfigError: They are not there.
        """
        line = ""
        if self.settings.is_file():
            with self.settings.open() as lines:
                line = next(itertools.islice(lines, entry.index, None), "")
        return self._to_settings(line, entry.index)

    def read_all_settings(self) -> list[dict[str, Any]]:
        """Return the resolved settings of all runs, in the order of the manifest.

        Raises:
            ConfigError: Those of a run are not there.
        """
        lines = self.read_settings_lines(len(self.read_entries()))
        return [self._to_settings(line, index) for index, line in enumerate(lines)]

    def read_settings_lines(self, count: int) -> list[str]:
        """Return so many lines of the settings as they stand, empty ones where there are fewer.

        A crash may have left more of them than of the manifest, since settings are written first.
        """
        lines = self.settings.read_text().splitlines()[:count] if self.settings.is_file() else []
        return lines + [""] * (count - len(lines))

    def _to_settings(self, line: str, index: int) -> dict[str, Any]:
        found = parse_object(line)
        if found is None:
            raise ConfigError(
                f"{self.settings}: line {index + 1}, the settings of run {index}, is missing or no JSON object; give "
                "the multirun command again, which writes it anew"
            )
        return found

    def read_about(self) -> dict[str, Any]:
        """Return `{"launcher": {"kind", "settings"}, "calls": [...]}`."""
        if not self.about.is_file():
            return {"launcher": None, "calls": []}
        return read_object(self.about, "remove it, and give the multirun command again")

    def read_cancelled(self) -> set[str]:
        """Return the run directories that are cancelled."""
        if not self.cancelled.is_file():
            return set()
        fix = "remove it; runs that were cancelled count as missing or stopped then"
        return set(read_object(self.cancelled, fix).get("run_directories", ()))


def extend(sweep: SweepDirectory, points: Sequence[Point], *, call: Mapping[str, Any]) -> list[Entry]:
    """Write points into the manifest, and return their entries.

    A point that is there keeps its index; what may change on resume (tracker, health rules, steps) is taken from now.
    Entries of earlier calls stay.

    Args:
        sweep: Its folder need not exist yet.
        points: Without two of one run id.
        call: What to remember of this call: `launcher` and the words.

    Raises:
        RunError: The folder cannot be written.
    """
    try:
        sweep.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"hydra.sweep.dir: {sweep.path} cannot be made ({error.strerror}); choose another folder with "
            "output_dir=FOLDER"
        ) from error
    with holding(sweep.lock):
        merged = merge(sweep, points)
        write_text(sweep.settings, _joined(merged.lines))
        write_text(sweep.manifest, _joined(json.dumps(asdict(entry)) for entry in merged.entries))
        about = sweep.read_about()
        record = {"time": time.time(), **{key: value for key, value in call.items() if key != "launcher"}}
        write_json(sweep.about, {"launcher": call["launcher"], "calls": [*about["calls"], record]})
    return merged.asked_for


@dataclass(frozen=True, slots=True)
class Merged:
    """A manifest with points put in."""

    entries: list[Entry]
    lines: list[str]
    """Settings of each entry, as they stand in `settings.jsonl`."""
    asked_for: list[Entry]
    """Entries of the points that were put in."""


def merge(sweep: SweepDirectory, points: Sequence[Point]) -> Merged:
    """Put points into what the manifest holds now; nothing is written.

    Raises:
        ConfigError: Something else has changed the files, and the points do not bring back what is lost.
    """
    entries = sweep.read_entries() if sweep.manifest.is_file() else []
    lines = sweep.read_settings_lines(len(entries))
    index_of = {entry.run_directory: entry.index for entry in entries}
    for point in points:
        index = index_of.setdefault(point.run_id, len(entries))
        settings = point.settings
        steps = settings.trainer.max_steps
        # A narrower call fixes what an earlier one varied: the run still has its place on that axis.
        values = {**entries[index].values, **point.values} if index < len(entries) else point.values
        entry = Entry(index, point.words, values, point.point_id, settings.seed, point.run_id, steps)
        line = json.dumps(settings.model_dump(mode="json"))
        entries[index : index + 1], lines[index : index + 1] = [entry], [line]
    lost = [entry.index for entry in entries if parse_object(lines[entry.index]) is None]
    if lost:
        told = ", ".join(map(str, lost[:10]))
        raise ConfigError(
            f"{sweep.settings}: the settings of run {told} are missing or no JSON, and this call does not ask for that "
            "run; give the multirun command that planned it (they stand in sweep.json)"
        )
    return Merged(entries, lines, [entries[index_of[point.run_id]] for point in points])


def set_cancelled(sweep: SweepDirectory, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
    """Mark run directories as not to be started, or take such marks away."""
    add, remove = set(add), set(remove)
    if not add and not remove & sweep.read_cancelled():
        return
    with holding(sweep.lock):
        marked = (sweep.read_cancelled() | add) - remove
        write_json(sweep.cancelled, {"run_directories": sorted(marked)})


def settings_of(values: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a line of `settings.jsonl`, which were checked when they were planned."""
    return RunSettings.model_validate(values)


def _to_entry(manifest: Path, record: Mapping[str, Any]) -> Entry:
    try:
        return Entry(**{**record, "overrides": tuple(record["overrides"])})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{manifest}: a line is no run of this version ({error}); {_MANIFEST_FIX}") from error


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
