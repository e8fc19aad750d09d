"""From Hydra's configuration to settings. The only module that knows OmegaConf."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    CompactHydraException,
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from grpo_exp import paths
from grpo_exp.errors import ConfigError
from grpo_exp.settings.base import Settings
from grpo_exp.settings.faults import all_faults, describe_faults, unknown_key
from grpo_exp.settings.run import RunSettings

GroupT = TypeVar("GroupT", bound=Settings)

#: What Hydra raises for a fault of the person who typed the command.
HYDRA_FAULTS = (CompactHydraException, HydraException, OmegaConfBaseException)


#: `train.yaml` takes the folder around `sweeps/` from this variable: it differs between a checkout and a wheel.
_SWEEPS_VARIABLE = "GRPO_EXP_SWEEPS_PARENT"


def announce_sweeps() -> None:
    """Make `sweeps/` a config group for every composition in this process."""
    os.environ[_SWEEPS_VARIABLE] = str(paths.sweeps_parent())


def compose(overrides: Sequence[str]) -> DictConfig:
    """Compose `train.yaml` with overrides as typed after the command.

    Raises:
        ConfigError: An option, key or spelling is wrong.
    """
    try:
        return _compose(overrides)
    except HYDRA_FAULTS as error:
        raise explain(error, overrides) from error


def _compose(overrides: Sequence[str]) -> DictConfig:
    announce_sweeps()
    with initialize_config_dir(config_dir=str(paths.config_dir()), version_base="1.3"):
        return hydra_compose("train", overrides=list(overrides))


def load_group(group: str, model: type[GroupT], overrides: Sequence[str]) -> GroupT:
    """Compose one group alone, as in `reward=math reward.engine.num_workers=4`, and return its settings.

    Args:
        group: A folder of `conf/`; the overrides choose its option.
        model: The settings of the group.
        overrides: Words that are about this group only.

    Raises:
        ConfigError: One message per fault.
    """
    chosen = [f"+{word}" if word.startswith(f"{group}=") else word for word in overrides]
    try:
        with initialize_config_dir(config_dir=str(paths.config_dir()), version_base="1.3"):
            config = hydra_compose(config_name=None, overrides=chosen)
    except HYDRA_FAULTS as error:
        raise explain(error, overrides) from error
    data = resolve(config)
    try:
        return TypeAdapter(dict[str, model]).validate_python(data)[group]  # pyright: ignore[reportInvalidTypeForm]
    except ValidationError as error:
        raise ConfigError(describe_faults(error, data)) from error


def to_settings(config: DictConfig) -> RunSettings:
    """Turn a composed configuration into settings.

    Raises:
        ConfigError: One message per fault, all at once.
    """
    return validate(resolve(config))


def validate(data: dict[str, Any]) -> RunSettings:
    """Check plain values (of a composition or of `config.json`) and return settings.

    Raises:
        ConfigError: One message per fault, all at once.
    """
    try:
        return RunSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigError(all_faults(error, data)) from error


def to_yaml(data: dict[str, Any]) -> str:
    """Write values as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(data))


def resolve(config: DictConfig) -> dict[str, Any]:
    """Return plain values.

    Raises:
        ConfigError: Interpolations that lead nowhere, each with the key it stands at, and values that are missing.
    """
    faults = []
    for path in _leaf_paths(config):
        try:
            OmegaConf.select(config, path, throw_on_missing=True)
        except InterpolationResolutionError as error:
            raw = OmegaConf.to_container(config, resolve=False)
            faults.append(
                f"{path}={_raw_value(raw, path)}: {str(error.msg).splitlines()[0]}; correct the name inside ${{...}}"
            )
        except OmegaConfBaseException:
            faults.append(f"{path}: has no value; add {path}=VALUE")
    if faults:
        raise ConfigError(faults)
    container = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _leaf_paths(config: DictConfig, prefix: str = "") -> list[str]:
    found: list[str] = []
    for key in config:
        path = f"{prefix}{key}"
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_interpolation() and not node._is_none():
            found += _leaf_paths(node, f"{path}.")
        else:
            found.append(path)
    return found


def _raw_value(container: Any, path: str) -> Any:
    for key in path.split("."):
        container = container[key]
    return container


# --------------------------------------------------------------------- faults that Hydra finds, one at a time


def explain(error: BaseException, overrides: Sequence[str]) -> ConfigError:
    """Say what is wrong, the rule and the fix for a fault that Hydra found.

    Args:
        error: What Hydra raised.
        overrides: The words that were typed after the command.
    """
    if isinstance(error, MissingConfigException) and error.options is not None:
        return ConfigError(_missing_option(error))
    if isinstance(error, OverrideParseException):
        return ConfigError(_unreadable(error))
    text = str(error)
    if isinstance(error, ConfigCompositionException):
        known = _known_composition_fault(text, overrides)
        if known is not None:
            return ConfigError(known)
    if isinstance(error, InterpolationResolutionError):
        where = next((o for o in overrides if "${" in o), "a setting")
        return ConfigError(f"{where}: {text.splitlines()[0]}; correct the name inside ${{...}}")
    first = " ".join(line.strip() for line in text.splitlines()[:2] if line.strip())
    return ConfigError(f"{first}; see --help for the groups and --cfg job for the settings")


def _missing_option(error: MissingConfigException) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    options = list(error.options or [])
    close = difflib.get_close_matches(option, options, n=1, cutoff=0.4)
    hint = f"did you mean {group}={close[0]}? " if close else ""
    return f"{group}={option}: there is no such option; {hint}options of {group}: {', '.join(options)}"


def _unreadable(error: OverrideParseException) -> str:
    override = error.override
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override}: is not of the form key=value; write {key}=VALUE"
    escaped = value.replace("'", "\\'")
    return (
        f"{override}: cannot be read; braces, quotes, colons and equals signs inside a value need quotes of their "
        f"own, inside the shell's: \"{key}='{escaped}'\""
    )


def _known_composition_fault(text: str, overrides: Sequence[str]) -> str | None:
    if "Ambiguous value for argument" in text:
        override = next((o for o in overrides if "," in o), "")
        key, _, value = override.partition("=")
        return f"{override}: is a list or several runs; write '{key}=[{value}]' for a list, or add --multirun for runs"
    match = re.search(r"Could not append to config\. An item is already at '([^']+)'", text)
    if match:
        key = match.group(1)
        override = next((o for o in overrides if o.lstrip("+").startswith(f"{key}=")), f"+{key}=...")
        return f"{override}: {key} exists already; drop the '+': {override.lstrip('+')}"
    match = re.search(r"Could not override '([^']+)'", text) or re.search(
        r"Could not delete from config\. '([^']+)' does not exist", text
    )
    if match:
        if match.group(1).startswith("trainer.extra."):
            given = next((o for o in overrides if o.startswith(f"{match.group(1)}=")), f"{match.group(1)}=VALUE")
            return f"{given}: trainer.extra is empty, so a field of TRL is added to it; write +{given}"
        return unknown_key(*_key_and_siblings(match.group(1), overrides))
    return None


def _key_and_siblings(path: str, overrides: Sequence[str]) -> tuple[str, list[str]]:
    """Return the deepest part of `path` that does not exist, and the names that do exist beside it."""
    groups = {entry.name for entry in paths.config_dir().iterdir() if entry.is_dir()}
    choices = [o for o in overrides if o.partition("=")[0] in groups and "," not in o]
    try:
        OverridesParser.create().parse_overrides(choices)
        node: Any = _compose(choices)
    except HYDRA_FAULTS:
        return path, sorted(groups)
    seen: list[str] = []
    parts = path.split("@")[0].split(".")
    for part in parts:
        seen.append(part)
        if not isinstance(node, DictConfig) or part not in node:
            break
        child = node._get_node(part)
        if not isinstance(child, DictConfig):
            seen = parts
            break
        node = child
    names = [str(key) for key in node] if isinstance(node, DictConfig) else []
    return ".".join(seen), names if len(seen) > 1 else sorted({*names, *groups})


def absolute_paths(settings: RunSettings, base: Path) -> RunSettings:
    """Return settings whose paths are absolute, taken from the folder the command was started in."""

    def absolute(text: str | None) -> str | None:
        return None if text is None else str((base / Path(text).expanduser()).resolve())

    changes: dict[str, Any] = {"output_dir": absolute(settings.output_dir)}
    if settings.dataset.kind == "jsonl":
        files = {"path": absolute(settings.dataset.path), "eval_path": absolute(settings.dataset.eval_path)}
        changes["dataset"] = settings.dataset.model_copy(update=files)
    if settings.model.kind == "local" and settings.model.path is not None:
        folder = base / Path(settings.model.path).expanduser()
        if folder.exists():  # otherwise it may be a hub id
            changes["model"] = settings.model.model_copy(update={"path": str(folder.resolve())})
    return settings.model_copy(update=changes)
