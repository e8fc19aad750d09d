"""From a composed configuration to a request for a run: the same for every command that takes `train`'s words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from grpo_exp.data.jsonl import load_jsonl
from grpo_exp.errors import ConfigError
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.settings import load
from grpo_exp.settings.absolute_paths import absolute_paths
from grpo_exp.settings.dataset import DatasetSettings
from grpo_exp.settings.run import RunSettings

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run as it was asked for."""

    settings: RunSettings
    """With absolute paths."""
    overrides: Sequence[str]
    """The words after the command."""
    config_yaml: str
    """The settings for a reader."""
    command: Sequence[str] | None = None
    """The words of the command, for the record, where it is not `python -m grpo_exp.train` with these overrides."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Commits of the hub that a new run is to begin with, by the setting that asks for them; see `revisions`."""


def build_request(config: DictConfig, overrides: Sequence[str], *, command: Sequence[str] | None = None) -> RunRequest:
    """Check the values of a composed configuration.

    Args:
        config: What was composed.
        overrides: The words after the command.
        command: The words of the command, as in `RunRequest`.

    Raises:
        ConfigError: All faults at once: of the values, and of the data file where its own settings are right.
    """
    values = load.resolve(config)
    try:
        settings = absolute_paths(load.validate(values), Path.cwd())
    except ConfigError as error:
        others = [*_output_faults(values.get("output_dir")), *_data_faults(values.get("dataset"))]
        raise ConfigError([*error.faults, *others]) from error
    return RunRequest(settings, overrides, load.to_yaml(settings.model_dump(mode="json")), command)


def _output_faults(output_dir: Any) -> Sequence[str]:
    why = why_not_writable(Path(output_dir).expanduser()) if isinstance(output_dir, str) and output_dir else None
    return () if why is None else (f"output_dir={output_dir}: {why}; choose another folder with output_dir=FOLDER",)


def _data_faults(values: Any) -> Sequence[str]:
    """Look at the data file although other groups are wrong, so that one answer tells all."""
    try:
        settings = TypeAdapter(DatasetSettings).validate_python(values)
        if settings.kind == "jsonl":
            load_jsonl(settings)
    except ValidationError:
        return ()  # told already
    except ConfigError as error:
        return error.faults
    return ()
