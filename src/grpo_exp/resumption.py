"""What an unfinished run is gone on from: found, checked, and said in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_exp import provenance
from grpo_exp.checkpoints.base_texts import changed_text
from grpo_exp.checkpoints.base_weights import fingerprint_of
from grpo_exp.checkpoints.choice import Choice, check, choose
from grpo_exp.checkpoints.continuation import store_of
from grpo_exp.checkpoints.manifest import BrokenCheckpointError
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.model import ModelSettings, location_of
from grpo_exp.settings.run import RESUME_WORDS, RunSettings

#: Differences that are shown where a run is refused because of them.
_MAX_SHOWN = 5
#: Name of a run's folder: hash of its settings, seed, and a number for those that were started beside it.
_RUN_ID = re.compile(r"([0-9a-f]{8})-s\d+(-\d+)?")


def named_run(settings: RunSettings) -> RunDirectory | None:
    """Return the run that `resume=FOLDER` names, or None where it names none.

    Raises:
        ConfigError: The folder holds no run, or one that these settings do not go on with.
    """
    directory = _named_folder(settings)
    if directory is None:
        return None
    path = Path(settings.resume)
    if not directory.config_json.is_file():
        raise ConfigError(
            f"resume={path}: is neither the folder of a run nor a checkpoint-N in its checkpoints/; name one of them, "
            "or use resume=auto"
        )
    wanted, found = settings.model_dump(mode="json"), directory.read_config()
    deciding = provenance.deciding_settings(found), provenance.deciding_settings(wanted)
    changed = provenance.changed_settings(*deciding)
    if found["seed"] != settings.seed:
        changed["seed"] = (found["seed"], settings.seed)
    if changed:
        raise ConfigError(
            f"resume={path}: that run has other settings, and going on with these would make a run that never was: "
            f"{_listed(changed)}; give it the same ones, or start a run of its own with resume=auto"
        )
    return directory


def expected_run(settings: RunSettings) -> RunDirectory | None:
    """Return where the run lies that would be gone on with, without looking at it; None where a new one is wanted."""
    if settings.resume == "never":
        return None
    digest = provenance.settings_hash(settings.model_dump(mode="json"))
    folder = Path(settings.output_dir) / settings.name / f"{digest}-s{settings.seed}"
    return _named_folder(settings) or RunDirectory(folder)


def find(directory: RunDirectory, settings: RunSettings, *, dataset_fingerprint: str) -> Choice:
    """Return what the run goes on from.

    Raises:
        ConfigError: The checkpoint that was named cannot be used, data or model have changed since, or the run has done
            more steps than are asked for.
    """
    identity = {"settings_hash": provenance.settings_hash(settings.model_dump(mode="json")), "seed": settings.seed}
    step, store, earlier = _named_step(settings), store_of(directory), _hash_in_name(directory)
    if step is None:
        choice = choose(store, directory.metrics, identity, earlier_hash=earlier)
    else:
        try:
            choice = Choice(check(store, step, directory.metrics, identity, earlier_hash=earlier))
        except BrokenCheckpointError as error:
            raise ConfigError(
                f"resume={settings.resume}: {error}; name another checkpoint, or use resume=auto"
            ) from error
    if choice.checkpoint is not None:
        _check_data(directory, choice.checkpoint.manifest.facts, dataset_fingerprint)
        _check_base(directory, choice.checkpoint.manifest.facts, settings.model)
        check_steps(directory, choice.checkpoint.step, settings)
    return choice


def is_named_checkpoint(settings: RunSettings) -> bool:
    """Say whether `resume` names a checkpoint, and not a run."""
    return _named_step(settings) is not None


def check_steps(directory: RunDirectory, done: int, settings: RunSettings) -> None:
    """Refuse to make a run shorter than it is.

    Raises:
        ConfigError: More steps are done than `trainer.max_steps` asks for.
    """
    if done > settings.trainer.max_steps:
        raise ConfigError(
            f"trainer.max_steps={settings.trainer.max_steps}: {directory.path} is the same run and has done {done} "
            f"steps; use trainer.max_steps={done} or more, or start a shorter one beside it with resume=never"
        )


def restart_text(directory: RunDirectory, choice: Choice, attempt: int, changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Say in a line where an attempt begins, and which settings are not those of the one before."""
    before = f"logs/attempt-{attempt - 1}"
    if choice.checkpoint is None:
        text = f"attempt {attempt} starts from the beginning; what the one before measured is in {before}"
    else:
        text = f"attempt {attempt} goes on from {choice.checkpoint.path.name}"
        if (directory.log_root / f"attempt-{attempt - 1}" / directory.metrics.name).exists():
            text += f"; what the one before measured behind it is in {before}"
    return f"{text}; changed: {_listed(changed, shown=len(changed))}" if changed else text


def _named_folder(settings: RunSettings) -> RunDirectory | None:
    if settings.resume in RESUME_WORDS:
        return None
    path = Path(settings.resume)
    return RunDirectory(path.parent.parent if _named_step(settings) is not None else path)


def _named_step(settings: RunSettings) -> int | None:
    """Return the step of the checkpoint that `resume` names, or None where it names none."""
    path = Path(settings.resume)
    number = path.name.removeprefix("checkpoint-")
    is_checkpoint = settings.resume not in RESUME_WORDS and path.parent.name == "checkpoints"
    return int(number) if is_checkpoint and number.isdecimal() else None


def _hash_in_name(directory: RunDirectory) -> str | None:
    """Return the hash that a run's folder is named after, as its first attempt made it; None of another name.

    A run that `resume` names was found to have these settings; what they count as may have changed since it began.
    """
    found = _RUN_ID.fullmatch(directory.run_id)
    return None if found is None else found[1]


def _check_data(directory: RunDirectory, facts: Mapping[str, Any], fingerprint: str) -> None:
    if facts["dataset_fingerprint"] != fingerprint:
        raise ConfigError(
            f"{directory.path}: its checkpoints were made on data that have changed since, and going on with others "
            "would make a run that never was; bring the data back, or start another run beside it with resume=never"
        )


def _check_base(directory: RunDirectory, facts: Mapping[str, Any], model: ModelSettings) -> None:
    """Refuse other weights below an adapter, or as the reference, and other prompts, than the run began with."""
    if facts.get("base_weights") not in {None, fingerprint_of(model)}:
        raise ConfigError(
            f"{directory.path}: the run began with the weights in {location_of(model)}, which have changed since, and "
            "going on with others would make a run that never was; bring them back, or start another run beside it "
            "with resume=never"
        )
    changed = changed_text(facts.get("base_texts", {}), model)
    if changed is not None:
        raise ConfigError(
            f"{changed}: the run in {directory.path} began with other content there, by which prompts are written or "
            "read otherwise, and going on would make a run that never was; bring it back, or start another run beside "
            "it with resume=never"
        )


def _listed(changed: Mapping[str, tuple[Any, Any]], *, shown: int = _MAX_SHOWN) -> str:
    values = [f"{path}={json.dumps(now)} (was {json.dumps(was)})" for path, (was, now) in sorted(changed.items())]
    more = f" and {len(values) - shown} more" if len(values) > shown else ""
    return ", ".join(values[:shown]) + more
