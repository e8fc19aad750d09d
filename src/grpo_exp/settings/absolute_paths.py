"""Settings whose paths mean the same from every folder: workers, `rerun` and `sync` are started elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.model import HubModel, LocalModel, ModelSettings, PretrainedModel
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.settings.pretrained_model import PLAIN
from grpo_exp.settings.run import RESUME_WORDS, RunSettings
from grpo_exp.settings.tracker import TrackerSettings


def absolute_paths(settings: RunSettings, base: Path) -> RunSettings:
    """Return settings whose paths are absolute, taken from the folder the command was started in."""

    def absolute(text: str | None) -> str | None:
        return None if text is None else str((base / Path(text).expanduser()).resolve())

    changes: dict[str, Any] = {"output_dir": absolute(settings.output_dir)}
    if settings.resume not in RESUME_WORDS:
        changes["resume"] = absolute(settings.resume)
    changes["dataset"] = _absolute_dataset(settings.dataset, base, absolute)
    changes["model"] = _absolute_model(settings.model, base, absolute)
    changes["tracker"] = _absolute_tracker(settings.tracker, base, absolute)
    return settings.model_copy(update=changes)


def _absolute_model(settings: ModelSettings, base: Path, absolute: Callable[[str | None], str | None]) -> ModelSettings:
    primed = settings.prime_from if settings.prime_from == PRIME_FIRST else absolute(settings.prime_from)
    changes: dict[str, Any] = {"prime_from": primed}
    if isinstance(settings, PretrainedModel):
        named = settings.chat_template
        changes["chat_template"] = named if named == PLAIN else absolute(named)
    if isinstance(settings, LocalModel | HubModel) and settings.path is not None:
        folder = base / Path(settings.path).expanduser()
        if folder.exists():  # otherwise it is a hub id
            changes["path"] = str(folder.resolve())
    return settings.model_copy(update=changes)


def _absolute_dataset(
    settings: DatasetSettings, base: Path, absolute: Callable[[str | None], str | None]
) -> DatasetSettings:
    """Return data set settings that mean the same from every folder; an id of the hub stays what it is."""
    rates = settings.pass_rates.model_copy(update={"path": absolute(settings.pass_rates.path)})
    changes: dict[str, Any] = {"pass_rates": rates, "exclude": tuple(map(absolute, settings.exclude))}
    if settings.kind in {"jsonl", "hub", "countdown"}:
        for name in ("path",) if settings.kind == "countdown" else ("path", "eval_path"):
            text = getattr(settings, name)
            is_local = settings.kind == "jsonl" or (text is not None and (base / Path(text).expanduser()).exists())
            changes[name] = absolute(text) if is_local else text
    return settings.model_copy(update=changes)


def _absolute_tracker(
    settings: TrackerSettings, base: Path, absolute: Callable[[str | None], str | None]
) -> TrackerSettings:
    """Return tracker settings that mean the same from every folder: `grpo-exp sync` may be called from another."""
    changes: dict[str, Any] = {}
    if settings.tensorboard is not None:
        folder = absolute(settings.tensorboard.directory)
        changes["tensorboard"] = settings.tensorboard.model_copy(update={"directory": folder})
    uri = None if settings.mlflow is None else settings.mlflow.tracking_uri
    if settings.mlflow is not None and uri is not None:
        scheme, separator, path = uri.partition(":///")
        if scheme == "sqlite" and separator and path and not path.startswith((":", "/", "file:")):
            uri = f"sqlite:///{base / path}"
        elif ":" not in uri and not uri.startswith("databricks"):
            uri = absolute(uri)
        changes["mlflow"] = settings.mlflow.model_copy(update={"tracking_uri": uri})
    return settings.model_copy(update=changes)
