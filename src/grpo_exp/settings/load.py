"""From Hydra's configuration to settings. The only module that knows OmegaConf."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from hydra.errors import CompactHydraException, HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from grpo_exp import paths
from grpo_exp.errors import ConfigError
from grpo_exp.settings.base import Settings
from grpo_exp.settings.command_words import check_words, explain, list_groups
from grpo_exp.settings.completion import complete
from grpo_exp.settings.faults import all_faults, describe_faults
from grpo_exp.settings.run import RunSettings

GroupT = TypeVar("GroupT", bound=Settings)

#: What Hydra raises for a fault of the person who typed the command.
_HYDRA_FAULTS = (CompactHydraException, HydraException, OmegaConfBaseException)

#: `train.yaml` takes the folder around `sweeps/` from this variable: it differs between a checkout and a wheel.
_SWEEPS_VARIABLE = "GRPO_EXP_SWEEPS_PARENT"


def announce_sweeps() -> None:
    """Make `sweeps/` a config group for every composition in this process."""
    os.environ[_SWEEPS_VARIABLE] = str(paths.sweeps_parent())


def compose(words: Sequence[str], *, primary: str = "train") -> DictConfig:
    """Compose `train.yaml`, or another file at the top of `conf/`, with `key=value` words as typed after the command.

    Raises:
        ConfigError: Options, keys or spellings are wrong.
    """
    with explained(words, primary=primary):
        return _compose(words, primary=primary)


def compose_one(words: Sequence[str]) -> DictConfig | None:
    """Compose as `compose` does, or return None where the words ask for several runs (`+sweeps=NAME`).

    Raises:
        ConfigError: Options, keys or spellings are wrong.
    """
    with explained(words):
        config = _compose(words, with_hydra=True)
    wants_several = config.hydra.mode == RunMode.MULTIRUN
    with open_dict(config):
        del config["hydra"]
    return None if wants_several else config


def vary(config: DictConfig, overrides: Sequence[Override]) -> DictConfig:
    """Return a copy of a composed configuration with values put in, as Hydra puts them in after composing.

    Composing anew takes about thirty times as long: a sweep composes once for each choice of groups.

    Args:
        config: What `compose` returned for the words that choose groups.
        overrides: Parsed words that set values, in the order in which they were typed.

    Raises:
        ConfigError: A key does not exist, or exists already.
    """
    varied = copy.deepcopy(config)
    try:
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), varied)
    except (*_HYDRA_FAULTS, ValueError) as error:
        words = [override.input_line or override.key_or_group for override in overrides]
        raise explain(error, words, groups(), lambda path: _key_and_siblings(path, words)) from error
    return varied


@contextlib.contextmanager
def explained(words: Sequence[str], *, with_switches: bool = False, primary: str = "train") -> Iterator[None]:
    """Check the words, and turn what Hydra raises inside into a ConfigError.

    Args:
        words: As typed after the command.
        with_switches: Some words are switches and settings of Hydra's own, which are left to Hydra.
        primary: The file that is composed.
    """
    options = groups()
    own = [w for w in words if "=" in w and not w.startswith("-") and "hydra" not in w] if with_switches else words
    check_words(own, options)
    try:
        yield
    except ConfigError:
        raise
    except (*_HYDRA_FAULTS, OSError, ValueError) as error:
        raise explain(error, words, options, lambda path: _key_and_siblings(path, words, primary)) from error


def _compose(words: Sequence[str], *, with_hydra: bool = False, primary: str = "train") -> DictConfig:
    announce_sweeps()
    with initialize_config_dir(config_dir=str(paths.config_dir()), version_base="1.3"):
        return hydra_compose(primary, overrides=list(words), return_hydra_config=with_hydra)


def groups() -> dict[str, list[str]]:
    """Return all config groups, `sweeps` included, each with its options."""
    sweeps = paths.sweeps_parent() / "sweeps"
    return {**list_groups(paths.config_dir()), "sweeps": sorted(file.stem for file in sweeps.glob("*.yaml"))}


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
    with explained(overrides), initialize_config_dir(config_dir=str(paths.config_dir()), version_base="1.3"):
        config = hydra_compose(config_name=None, overrides=chosen)
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
        return complete(RunSettings.model_validate(data))
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
    with contextlib.suppress(OmegaConfBaseException):  # looked at again below, key by key
        return _to_plain(config)
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
    return _to_plain(config)


def _to_plain(config: DictConfig) -> dict[str, Any]:
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


# ------------------------------------------------------------------------------------------ names that exist


def _key_and_siblings(path: str, words: Sequence[str], primary: str = "train") -> tuple[str, list[str]]:
    """Return the deepest part of `path` that does not exist, and the names that do exist beside it.

    Where all of a path exists, its own last name is among them.
    """
    options = list_groups(paths.config_dir())
    choices = [word for word in words if word.partition("=")[0] in options and "," not in word]
    node: Any = _compose(choices, primary=primary)
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
    else:
        return path, parts[-1:]  # all of it exists: what it was given is at fault
    names = [str(key) for key in node] if isinstance(node, DictConfig) else []
    return ".".join(seen), names if len(seen) > 1 else sorted({*names, *options})
