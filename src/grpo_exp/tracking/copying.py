"""Copy a run to one tracker, from where the last copy left off."""

from __future__ import annotations

import time
import traceback
from typing import Any

from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.tracker import TrackerSettings
from grpo_exp.tracking.build import build_tracker
from grpo_exp.tracking.copy_state import CopyState, StateFile
from grpo_exp.tracking.mlflow_params import without_password
from grpo_exp.tracking.tables import UnreadableTableError, read_table
from grpo_exp.tracking.tracker import RunInfo, RunStatus, Tracker
from grpo_exp.tracking.unsent import has_news, is_same_file, mark_of, new_files, new_findings, new_tables, next_chunk


class RunCopy:
    """The copy of a run in one tracker. Every call may raise what the backend raises; then `abandon` comes next.

    Args:
        directory: The run.
        settings: Of the run.
        name: Which tracker, as it is called in the settings.
        trackers: The settings of trackers; None takes those of the run.
    """

    def __init__(
        self, directory: RunDirectory, settings: RunSettings, name: str, *, trackers: TrackerSettings | None = None
    ) -> None:
        self._directory = directory
        self._settings = settings if trackers is None else settings.model_copy(update={"tracker": trackers})
        self._name = name
        self._file = StateFile(directory, name)
        self._state = CopyState()
        self._tracker: Tracker | None = None
        self.num_records = 0
        self.unreadable: list[str] = []
        """Tables of completions that are damaged, and in no tracker."""

    @property
    def title(self) -> str:
        """How messages call the tracker."""
        return self._build().title

    def lacks(self, status: RunStatus | None) -> bool:
        """Say whether the tracker lacks anything, its status included."""
        state = self._file.load(self._build().destination)
        if state.is_fresh or state.status != status:
            return True
        return has_news(self._directory, state)

    def send_new(self) -> None:
        """Send what is new, after opening the tracker's run where it is not open."""
        tracker = self._tracker if self._tracker is not None else self._open()
        if not is_same_file(self._directory.metrics, self._state):
            self._begin_again(tracker)
        while (chunk := next_chunk(self._directory.metrics, self._state)) is not None:
            tracker.log(chunk.records)
            chunk.confirm(self._state)
            self.num_records += len(chunk.records)
            self._save_if_safe()
        self._send_rest(tracker)

    def finish(self, status: RunStatus | None, ended: float) -> None:
        """Send what is new and mark the tracker's run as ended; None leaves it as one that goes on."""
        self.send_new()
        tracker = self._tracker
        assert tracker is not None
        self._send_files(tracker, at_end=True)
        tracker.finish(status, ended)
        self._tracker = None
        self._state.status = status
        self._file.save(self._state)

    def abandon(self) -> None:
        """Let go of a tracker after a fault; the next call opens it anew, from what is known to have arrived."""
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        try:
            tracker.finish(None, time.time())
        except (Exception, SystemExit):  # it has a fault already, which is told
            traceback.print_exc()

    def _build(self) -> Tracker:
        return build_tracker(self._name, self._settings, self._directory)

    def _open(self) -> Tracker:
        tracker = self._build()
        self._tracker = tracker  # before it starts: a start that fails in the middle has to be closed
        state = self._file.load(tracker.destination)
        ids = tracker.start(self._info(state))
        if ids != state.ids:
            state = CopyState(tracker.destination, ids)
        state.attempt, state.status = self._directory.attempt, None
        self._state = state
        self._file.save(state)
        self._send_files(tracker, at_end=False)
        self._save_if_safe()
        return tracker

    def _info(self, state: CopyState) -> RunInfo:
        settings = self._settings
        tags = {"name": settings.name, "seed": str(settings.seed), "algorithm": settings.algorithm.name}
        group = {} if settings.tracker.group is None else {"group": settings.tracker.group}
        return RunInfo(
            name=settings.name,
            run_id=self._directory.run_id,
            config=_shown_config(settings),
            directory=self._directory.path,
            tags={**tags, **group, **settings.tracker.tags},
            previous_ids=state.ids,
            is_fresh=state.is_fresh,
        )

    def _begin_again(self, tracker: Tracker) -> None:
        if tracker.forget():
            self._state.start_again()
            self._send_files(tracker, at_end=False)
        else:
            self._state.start_curves_again()
        self._save_if_safe()

    def _send_rest(self, tracker: Tracker) -> None:
        before = self._state.events_offset
        for event in new_findings(self._directory, self._state):
            tracker.alert(event)
            if tracker.alerts_leave_at_once:
                self._note_told(tracker, mark_of(event))
        for path, mark in new_tables(self._directory, self._state):
            try:
                table = read_table(path)
            except UnreadableTableError:
                traceback.print_exc()
                self.unreadable.append(path.name)
            else:
                tracker.add_table(table)
            self._state.tables[path.name] = mark
            before = -1
        if self._state.events_offset != before:
            self._save_if_safe()

    def _note_told(self, tracker: Tracker, mark: str) -> None:
        """Note at once that a finding was told: an alert that comes twice is worse than one that is lost."""
        known = self._file.load(tracker.destination)
        known.rules.append(mark)
        self._file.save(known)

    def _send_files(self, tracker: Tracker, *, at_end: bool) -> None:
        for path, mark in new_files(self._directory, self._state, at_end=at_end):
            tracker.add_file(path)
            self._state.files[path.name] = mark

    def _save_if_safe(self) -> None:
        if self._tracker is not None and not self._tracker.confirms_at_finish:
            self._file.save(self._state)


def _shown_config(settings: RunSettings) -> dict[str, Any]:
    """Return the settings as trackers show them: without a password."""
    config = settings.model_dump(mode="json")
    mlflow = config["tracker"]["mlflow"]
    if mlflow is not None and mlflow["tracking_uri"] is not None:
        mlflow["tracking_uri"] = without_password(mlflow["tracking_uri"])
    return config


def describe(error: BaseException) -> str:
    """Return what went wrong in one line."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line[:300]}" if first_line else type(error).__name__
