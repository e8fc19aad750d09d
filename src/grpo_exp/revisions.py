"""Commits of the hub that a run began with: what a name means may move between two attempts, and a run may not.

The first attempt takes what a setting asks for, null being the newest, and its `provenance.json` keeps the commits that
these were. Later attempts take those. The settings stay as they were typed, and with them the id of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_exp.data.hub import EVAL_REVISION, REVISION
from grpo_exp.hub_cache import COMMIT, cached_commit
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.model import HubModel, LocalModel, ModelSettings
from grpo_exp.settings.run import RunSettings

#: Key of `provenance.json`: setting -> commit.
HUB_COMMITS = "hub_commits"
MODEL_REVISION = "model.revision"


def recorded(directory: RunDirectory | None) -> dict[str, str]:
    """Return the commits that a run began with, by the setting that asks for them; none of a run that is new."""
    if directory is None or not directory.provenance.is_file():
        return {}
    return dict(json.loads(directory.provenance.read_text()).get(HUB_COMMITS, {}))


def pinned(settings: RunSettings, commits: Mapping[str, str]) -> RunSettings:
    """Return settings that ask for these commits; to load with, not to be kept: they would be those of another run."""
    changes: dict[str, Any] = {}
    if MODEL_REVISION in commits:
        changes["model"] = settings.model.model_copy(update={"revision": commits[MODEL_REVISION]})
    dataset = {name.partition(".")[2]: commits[name] for name in (REVISION, EVAL_REVISION) if name in commits}
    if dataset:
        changes["dataset"] = settings.dataset.model_copy(update=dataset)
    return settings.model_copy(update=changes)


def pinned_values(directory: RunDirectory) -> dict[str, Any]:
    """Return the resolved settings of a run, with its commits in the place of names.

    Raises:
        ConfigError: The folder holds no run.
    """
    values = directory.read_config()
    for name, commit in recorded(directory).items():
        group, _, key = name.partition(".")
        values = {**values, group: {**values[group], key: commit}}
    return values


def model_commit(model: ModelSettings) -> str | None:
    """Return the commit of a model of the hub, after downloading it where it is not in the cache; None for others.

    Raises:
        ConfigError: It cannot be had.
    """
    if not isinstance(model, LocalModel | HubModel) or model.path is None or Path(model.path).expanduser().is_dir():
        return None
    if model.prime_from is not None:  # only its tokenizer may be read, to count tokens
        return cached_commit("models", model.path, model.revision)
    from grpo_exp.models.hub import fetch_folder  # only where something is loaded

    folder = fetch_folder(model.path, model.revision, trust_remote_code=model.trust_remote_code)
    return folder.name if COMMIT.fullmatch(folder.name) else None
