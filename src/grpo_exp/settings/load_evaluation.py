"""From words to the settings of an evaluation, on top of those of a run where one is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.settings.command_words import parse_words
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.faults import describe_faults

_PRIMARY = "evaluate"
#: Name of the benchmark that is a run's own held-out prompts.
_OWN = "held_out"


def load_evaluation(words: Sequence[str], *, run: Mapping[str, Any] | None = None) -> EvaluationSettings:
    """Compose `evaluate.yaml` and check it.

    Args:
        words: `GROUP=OPTION` and `key=value`, as typed.
        run: The resolved settings of the run that is evaluated; None where it is a model.

    Raises:
        ConfigError: One message per fault, all at once.
    """
    options = load.groups(_PRIMARY)
    chosen = [word for word in words if word.partition("=")[0] in options]
    config = load.compose(chosen, primary=_PRIMARY)
    taken = {word.partition("=")[0] for word in chosen}
    for key, value in ({} if run is None else _of_run(run)).items():
        if key not in taken:
            config[key] = value
    others = [word for word in words if word not in chosen]
    with load.explained(others, primary=_PRIMARY):
        config = load.vary(config, parse_words(others), primary=_PRIMARY)
    data = load.resolve(config)
    try:
        settings = EvaluationSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigError(describe_faults(error, data)) from error
    if run is not None and "dataset" in taken:
        settings = _named_after_data(settings)
    return _absolute(settings, Path.cwd())


def _of_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run has in place of the defaults of an evaluation."""
    return {
        **{group: run[group] for group in ("model", "dataset", "reward")},
        "seed": run["seed"],
        "temperature": run["algorithm"]["temperature"],
        "top_p": run["algorithm"]["top_p"],
        "max_completion_length": run["trainer"]["max_completion_length"],
    }


def _named_after_data(settings: EvaluationSettings) -> EvaluationSettings:
    """Keep held-out prompts of another data set apart from the run's own: they are no points of one curve."""
    benchmark = settings.benchmark
    if benchmark.kind != "held_out" or benchmark.name != _OWN:
        return settings
    named = benchmark.model_copy(update={"name": f"{_OWN}_{settings.dataset.name}"})
    return settings.model_copy(update={"benchmark": named})


def _absolute(settings: EvaluationSettings, base: Path) -> EvaluationSettings:
    """Return settings whose own paths are absolute; those of a run are so already."""
    changes: dict[str, Any] = {"output_dir": str((base / Path(settings.output_dir).expanduser()).resolve())}
    if settings.model.kind == "local" and settings.model.path is not None:
        folder = base / Path(settings.model.path).expanduser()
        if folder.exists():  # otherwise it may be a hub id
            changes["model"] = settings.model.model_copy(update={"path": str(folder.resolve())})
    return settings.model_copy(update=changes)
