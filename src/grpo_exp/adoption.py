"""From checked settings to a run that this process owns: its folder, its lock, its files."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from grpo_exp import provenance, resumption, revisions
from grpo_exp.checkpoints import continuation
from grpo_exp.checkpoints.base_texts import changed_text
from grpo_exp.checkpoints.choice import Choice
from grpo_exp.composition import RunRequest
from grpo_exp.conclusion import conclude, lost_result
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.preflight import Prepared, prepare
from grpo_exp.preflight.effective import effective_lines
from grpo_exp.reporting.live import LiveRun
from grpo_exp.rewards.source_hash import source_hash
from grpo_exp.run_lock import Lock, OwnedError
from grpo_exp.rundir import RunDirectory, find_or_create, read_events, write_json, write_text
from grpo_exp.settings.run import RunSettings


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that this process owns and is about to start."""

    directory: RunDirectory
    settings: RunSettings
    lock: Lock
    started: float = field(default_factory=time.perf_counter)
    """When the attempt began, on the clock of `time.perf_counter`."""

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the run, write a result if nobody did, and give it free."""
        try:
            yield
        except KeyboardInterrupt:  # a request in a moment in which no worker ran: it is no failure
            if self.lock.is_held():
                self.directory.stop_file.touch()
            raise
        finally:
            self.end()

    def shown(self, console: Console) -> LiveRun:
        """Return the view of the run as it goes on; it is shown while it is entered."""
        return LiveRun(
            self.directory.metrics,
            self.directory.status,
            console,
            total_steps=self.settings.trainer.max_steps,
            component_names=list(self.settings.reward.components),
            events=self.directory.events,
            shown_bytes=self.directory.metrics.stat().st_size if self.directory.metrics.exists() else 0,
        )

    def end(self, reason: str | None = None) -> None:
        """Write a result if nobody did, and give the run free; one that others took away meanwhile is theirs.

        Args:
            reason: Why the workers did not write one, if that is known.
        """
        try:
            if self.lock.is_held():
                if self.directory.read_result() is None:
                    seconds = time.perf_counter() - self.started
                    write_json(self.directory.result, lost_result(self.directory, reason=reason, seconds=seconds))
                self.directory.status.unlink(missing_ok=True)
                self.directory.stop_file.unlink(missing_ok=True)  # it was heeded
        finally:
            self.lock.release()


def adopt(request: RunRequest, console: Console) -> Adopted | int:
    """Check everything, take the run's folder and write its files; or return the exit code of a finished run.

    Raises:
        ConfigError: Something is wrong with the settings, or the run is somebody else's just now.
    """
    commits = revisions.recorded(resumption.expected_run(request.settings)) or request.commits
    prepared = prepare(revisions.pinned(request.settings, commits))
    directory, lock = take(request.settings)
    try:
        # Asked as the owner: another process may have finished the run a moment ago.
        finished = finished_code(directory, prepared, request.settings, console)
        if finished is None:
            choice = resumption.find(directory, request.settings, dataset_fingerprint=prepared.data.fingerprint())
            restart = write_run_files(directory, request, choice, commits={**prepared.data.commits, **commits})
            introduce(directory, prepared, request.settings, console, choice=choice, restart=restart)
            return Adopted(directory, request.settings, lock)
    except BaseException:
        lock.release()
        raise
    lock.release()
    return finished


def take(settings: RunSettings) -> tuple[RunDirectory, Lock]:
    """Find the run of these settings or the one that is named, or make a new one, and become its owner.

    Raises:
        ConfigError: The folder cannot be written, the run is somebody else's just now, or of other settings.
    """
    named = resumption.named_run(settings)
    digest = provenance.settings_hash(settings.model_dump(mode="json"))
    root, run_id = Path(settings.output_dir) / settings.name, f"{digest}-s{settings.seed}"
    is_new = settings.resume == "never"
    while True:
        try:
            directory = named or find_or_create(root, run_id, resume=not is_new)
            lock = Lock(directory.lock)
            lock.acquire()
        except OwnedError as error:
            if is_new:  # somebody who starts the same settings found the new folder before it was locked
                continue
            raise ConfigError(str(error)) from error
        except RunError as error:
            raise ConfigError(str(error)) from error
        if is_new and directory.attempt:  # found, used and given free in that moment
            lock.release()
            continue
        return directory, lock


def finished_code(directory: RunDirectory, prepared: Prepared, settings: RunSettings, console: Console) -> int | None:
    """Show the result of a run that needs no more work and return its exit code, else None.

    A run that a health rule ended needs none while the rules are the same: it would end there again. Under other rules
    it is run again.

    One that was made longer since, or that is asked to go back to a checkpoint, needs more work.

    Raises:
        ConfigError: The run saw other data, or another template, than there are now, or has done more steps than are
            asked for.
    """
    result = directory.read_result()
    if result is None or result["exit_code"] not in {ExitCode.COMPLETED, ExitCode.ENDED_BY_RULE}:
        return None
    if resumption.is_named_checkpoint(settings):
        return None
    resumption.check_steps(directory, result["steps"], settings)
    if result["exit_code"] == ExitCode.COMPLETED and result["steps"] < settings.trainer.max_steps:
        return None
    by_rule = result["exit_code"] == ExitCode.ENDED_BY_RULE
    if by_rule and directory.read_config().get("health") != settings.model_dump(mode="json")["health"]:
        return None
    facts = json.loads(directory.provenance.read_text())
    seen, changed = facts.get("dataset_fingerprint"), changed_text(facts.get("base_texts", {}), settings.model)
    if changed is not None:
        raise ConfigError(
            f"{changed}: the run in {directory.path} is done, with other content there; bring it back to see that run, "
            "or start another beside it with resume=never"
        )
    if seen is not None and seen != prepared.data.fingerprint():
        raise ConfigError(
            f"{directory.path}: this run is done, on data that have changed since; start another beside it with "
            "resume=never"
        )
    if by_rule:
        text = (
            f"This run was ended by a rule ({result['reason']}). To go on with it: health=off, or other settings of "
            "health; to run another beside it: resume=never"
        )
    else:
        text = f"This run is done already ({result['reason']}). To run it again: resume=never"
    console.print(text, soft_wrap=True, markup=False)
    return conclude(directory, settings, console)


def write_run_files(
    directory: RunDirectory, request: RunRequest, choice: Choice, *, commits: Mapping[str, str]
) -> str | None:
    """Begin an attempt and write down what is run; return what a restart changes, None for the first attempt.

    Args:
        directory: The run.
        request: What was asked for.
        choice: What it goes on from.
        commits: Of the hub, by the setting that asks for them; those that are known already.
    """
    config = request.settings.model_dump(mode="json")
    before = json.loads(directory.config_json.read_text()) if directory.config_json.is_file() else config
    then = json.loads(directory.provenance.read_text()) if directory.provenance.is_file() else None
    attempt = continuation.begin(directory, choice)
    restart = None
    if attempt > 1:
        changed = provenance.changed_settings(before, config)
        restart = resumption.restart_text(directory, choice, attempt, changed)
        kind, step = ("restart", 0) if choice.checkpoint is None else ("resume", choice.checkpoint.step)
        directory.add_event(kind, restart, changed=changed, step=step)
    for line in choice.skipped:
        directory.add_event("checkpoint", f"skipped {line}")
    write_json(directory.config_json, config)
    write_text(directory.config_yaml, request.config_yaml)
    write_text(directory.overrides, "".join(f"{override}\n" for override in request.overrides))
    typed = request.command if request.command is not None else provenance.python_command(list(request.overrides))
    facts = provenance.collect(list(typed))
    own = {
        "seed": request.settings.seed,
        "attempt": attempt,
        "reward_source": source_hash(request.settings.reward),
        revisions.HUB_COMMITS: dict(commits),
    }
    write_json(directory.provenance, {**facts, **own})
    if choice.checkpoint is not None and then is not None:
        for text in provenance.differences(then, {**facts, **own}):
            directory.add_event("warning", f"goes on with other code than before: {text}")
    return restart


def introduce(
    directory: RunDirectory,
    prepared: Prepared,
    settings: RunSettings,
    console: Console,
    *,
    choice: Choice,
    restart: str | None,
) -> None:
    """Say what is going to happen."""
    data = prepared.data
    lines = [
        ("run", str(directory.path)),
        *effective_lines(settings),
        ("batch", prepared.plan.describe()),
        ("data", f"{len(data.train)} training prompts, {len(data.evaluation)} held out"),
        *(("memory" if number == 0 else "", line) for number, line in enumerate(prepared.memory)),
        *(("note", note) for note in prepared.notes),
        *(("advice", line) for line in prepared.advice),
    ]
    found = [("skipped", line) for line in choice.skipped]
    if restart is not None:
        found.append(("restart" if choice.checkpoint is None else "resume", restart))
    events = read_events(directory, attempt=directory.attempt)
    found += [("warning", event["text"]) for event in events if event["kind"] == "warning"]
    lines[1:1] = found
    for title, text in lines:
        console.print(f"{title:<9}{text}", soft_wrap=True, highlight=False, markup=False)
