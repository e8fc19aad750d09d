"""What workers do with what training tells them: the main process writes it down, the others look whether to stop."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any

from grpo_exp.checkpoints.base_texts import texts_of
from grpo_exp.checkpoints.base_weights import fingerprint_of
from grpo_exp.data.prompts import PromptData
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.evaluation.completion_table import write_table
from grpo_exp.health.explanations import Explainer
from grpo_exp.health.finding import Finding
from grpo_exp.health.monitor import HealthMonitor
from grpo_exp.provenance import settings_hash
from grpo_exp.revisions import HUB_COMMITS
from grpo_exp.rundir import RunDirectory, read_events, write_json
from grpo_exp.settings.run import RunSettings
from grpo_exp.stop_watch import StopRequestedError, StopWatch
from grpo_exp.tracking.feeding import TrackerFeed
from grpo_exp.tracking.metrics_log import MetricsLog, MetricsRecord, read_metrics
from grpo_exp.tracking.tracker import RunStatus
from grpo_exp.watchdog import Watchdog

#: One batch of prompts is noise; so many latest values of `best_metric` are averaged.
BEST_OVER_STEPS = 10


class SilentObserver:
    """What processes other than the main one do: look whether to stop."""

    def __init__(self, watch: StopWatch, watchdog: Watchdog | None = None) -> None:
        self._watch = watch
        self._watchdog = watchdog
        self.stop_reason: str | None = None
        self.health_stop = False
        self.last_step = 0

    def on_devices(self, facts: dict[str, Any]) -> None:
        """Ignore the devices."""

    def on_commits(self, commits: dict[str, str]) -> None:
        """Ignore the commits: the main process tells them."""

    def on_data(self, data: PromptData) -> None:
        """Ignore the data."""

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Take it as a sign of life."""
        if self._watchdog is not None:
            self._watchdog.on_phase(name)

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Ignore metrics."""

    def on_completions(self, info: TableInfo, rows: list[CompletionRow]) -> None:
        """Ignore completions."""

    def on_note(self, text: str) -> None:
        """Ignore notes: the main process writes the same one."""

    def takes_checkpoint(self) -> bool:
        """Say whether the step that has just ended is to be saved, whatever the settings say."""
        return False

    def checkpoint_facts(self) -> dict[str, Any]:
        """Return nothing: the main process is asked."""
        return {}

    def close(self, status: RunStatus) -> None:
        """Nothing is open."""

    def wants_stop(self) -> bool:
        """Say whether a STOP file, a lost front end, a new owner or a rule asks for it; it is asked after each step."""
        if self._watchdog is not None:
            self._watchdog.on_step()
        if self.stop_reason is None:
            self.stop_reason = self._watch.reason()
        return self.stop_reason is not None

    def is_replaced(self) -> bool:
        """Say whether the run belongs to others by now."""
        return self._watch.is_replaced()


class MainObserver(SilentObserver):
    """The main process: writes metrics, events and samples, has trackers fed, watches the run's health."""

    def __init__(
        self, directory: RunDirectory, watch: StopWatch, settings: RunSettings, *, watchdog: Watchdog | None = None
    ) -> None:
        super().__init__(watch, watchdog)
        self._directory = directory
        self._settings = settings
        self._metrics = MetricsLog(directory.metrics)
        self._health = HealthMonitor(settings)
        self._wants_checkpoint = False
        told = [event["topic"] for event in read_events(directory) if event["kind"] == "explanation"]
        self._explainer = Explainer(settings, told=told)
        self._told_of_tables = False
        self._fingerprint = ""
        self._base: str | None = None
        self._texts: dict[str, str] = {}
        self._best = deque[float](maxlen=BEST_OVER_STEPS)
        self._told_no_best = False
        self._replay(read_metrics(directory.metrics))
        self._trackers = TrackerFeed(directory, settings.tracker)

    def on_devices(self, facts: dict[str, Any]) -> None:
        """Write down what the workers compute with."""
        self._add_provenance(torch=facts)

    def on_commits(self, commits: dict[str, str]) -> None:
        """Write down the commits of the hub that the run is made of, for the next attempts."""
        self._add_provenance(**{HUB_COMMITS: commits})

    def on_data(self, data: PromptData) -> None:
        """Write down which data the run saw."""
        self._fingerprint, self._base = data.fingerprint(), fingerprint_of(self._settings.model)
        self._texts = texts_of(self._settings.model)
        self._add_provenance(dataset_fingerprint=self._fingerprint, base_texts=self._texts)
        for reason, count in data.dropped.items():
            listed = {"targets": list(data.dropped_targets[reason])} if reason in data.dropped_targets else {}
            self._directory.add_event("data", f"{count} rows {reason} were left out", count=count, **listed)

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Tell the front end what is going on; before the first step this is also the place to stop at."""
        super().on_phase(name, done, total)
        if (self.last_step == 0 and self.wants_stop()) or self.is_replaced():
            raise StopRequestedError(self.stop_reason or "another process has taken over the run")
        write_json(self._directory.status, {"phase": name, "done": done, "total": total})

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Write, which the trackers are fed from, then look."""
        record = self._metrics.append(step, metrics, time.time())
        self._trackers.look()
        if step == 0 or "train/loss" not in metrics:
            return
        self.last_step = step
        self._note_best(record)
        for explanation in self._explainer.observe(step, record["metrics"]):
            self._directory.add_event("explanation", explanation.text, topic=explanation.topic, step=step)
        for finding in self._health.observe(step, record["metrics"], record.get("non_finite", [])):
            self._directory.add_event(finding.severity, finding.text, **finding.fields())
            self._act_on(finding)

    def takes_checkpoint(self) -> bool:
        """Say, once for each finding with that action, that a checkpoint is wanted; the caller saves it."""
        wanted, self._wants_checkpoint = self._wants_checkpoint, False
        return wanted

    def checkpoint_facts(self) -> dict[str, Any]:
        """Return what a checkpoint says about the run; the curves before it are on the disk then."""
        config, (size, lines) = self._settings.model_dump(mode="json"), self._metrics.sync()
        facts: dict[str, Any] = {
            "settings_hash": settings_hash(config),
            "seed": self._settings.seed,
            "dataset_fingerprint": self._fingerprint,
            "base_texts": self._texts,
            "metrics": {"bytes": size, "lines": lines},
        }
        if self._base is not None:
            facts["base_weights"] = self._base
        metric = self._settings.trainer.checkpoint.best_metric
        if self._best:
            facts["best"] = {"metric": metric, "value": statistics.fmean(self._best)}
        elif metric is not None and not self._told_no_best:
            self._told_no_best = True
            text = f"trainer.checkpoint.best_metric={metric}: no step has measured it, so no best checkpoint is kept"
            self._directory.add_event("warning", f"{text}; take a curve of metrics.jsonl, or null")
        return facts

    def on_completions(self, info: TableInfo, rows: list[CompletionRow]) -> None:
        """Keep completions with their scores; a table that cannot be written is told once, and costs nothing else."""
        try:
            write_table(self._directory.completion_table(info.kind, info.step), rows, info)
        except Exception as error:  # on purpose: whatever is wrong with a copy for readers must not end the run
            traceback.print_exc()
            if not self._told_of_tables:
                self._told_of_tables = True
                # On a full disk there is no room for the event, either; the traceback stands in the log.
                with contextlib.suppress(OSError):
                    self._directory.add_event("warning", _lost_table(info, error), step=info.step)

    def on_note(self, text: str) -> None:
        """Write it down; the front end shows it."""
        self._directory.add_event("note", text)

    def close(self, status: RunStatus) -> None:
        """End the tracker runs; what they say about themselves is in `tracker.json` and the events."""
        if not self.is_replaced():
            self._directory.status.unlink(missing_ok=True)
        self._metrics.close()
        self._trackers.finish("ended_by_rule" if status == "stopped" and self.health_stop else status)

    def _add_provenance(self, **facts: Any) -> None:
        provenance = json.loads(self._directory.provenance.read_text())
        write_json(self._directory.provenance, {**provenance, **facts})

    def _act_on(self, finding: Finding) -> None:
        if finding.severity == "info":
            return
        self._wants_checkpoint |= finding.action == "checkpoint"
        if finding.action == "stop" and not self.health_stop:
            self.stop_reason, self.health_stop = f"health.rules.{finding.rule}: {finding.text}", True

    def _replay(self, records: Sequence[MetricsRecord]) -> None:
        """Look at what the steps before a resume measured, so that rules and remarks go on where they were."""
        for record in records:
            if record["step"] == 0 or "train/loss" not in {*record["metrics"], *record.get("non_finite", [])}:
                continue
            self.last_step = record["step"]
            self._note_best(record)
            self._explainer.observe(record["step"], record["metrics"])
        if records:  # a run that starts from the beginning tells anew
            self._health.replay(records, [event for event in read_events(self._directory) if "rule" in event])

    def _note_best(self, record: MetricsRecord) -> None:
        value = record["metrics"].get(self._settings.trainer.checkpoint.best_metric or "")
        if value is not None:
            self._best.append(value)


def _lost_table(info: TableInfo, error: Exception) -> str:
    return (
        f"the completions of step {info.step} ({info.kind}) were not written ({type(error).__name__}: {error}); the "
        "run goes on, and further tables that fail are not told; make room, or set trainer.completions.every_steps=null"
    )
