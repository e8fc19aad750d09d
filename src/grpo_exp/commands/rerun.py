"""Start the same run anew, from its written settings: `grpo-exp rerun RUN_FOLDER [output_dir=FOLDER]`.

The settings are those of `config.json`, whatever the presets say today; the new run lies beside the old one, or below
another output folder. What differs in code and versions is told; `grpo-exp compare OLD NEW` shows all of it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from grpo_exp import provenance
from grpo_exp.composition import RunRequest
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError
from grpo_exp.revisions import recorded
from grpo_exp.rewards.source_hash import source_hash
from grpo_exp.rundir import RunDirectory
from grpo_exp.runner import run
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings

_USAGE = "Usage: grpo-exp rerun RUN_FOLDER [output_dir=FOLDER]"


def main(words: Sequence[str]) -> int:
    """Run again what a folder holds, and return the exit code of the new run."""
    folders = [word for word in words if "=" not in word and not word.startswith("-")]
    outputs = [word.removeprefix("output_dir=") for word in words if word.startswith("output_dir=")]
    if len(folders) != 1 or len(outputs) > 1 or len(folders) + len(outputs) < len(words):
        raise ConfigError(f"{' '.join(words)}: one folder is wanted, and nothing else is changed. {_USAGE}")
    directory = RunDirectory(Path(folders[0]).resolve())
    settings = read_settings(directory, output_dir=outputs[0] if outputs else None)
    overrides = directory.overrides.read_text().splitlines() if directory.overrides.is_file() else []
    _check_one_machine(directory, settings, overrides)
    console = build_console()
    now = {**provenance.collect([]), "reward_source": source_hash(settings.reward)}
    for text in provenance.differences(json.loads(directory.provenance.read_text()), now):
        console.print(f"note     {text}", soft_wrap=True, highlight=False, markup=False)
    command = ["grpo-exp", "rerun", *words]
    text, commits = load.to_yaml(settings.model_dump(mode="json")), recorded(directory)
    return run(RunRequest(settings, overrides, text, command, commits), console)


def _check_one_machine(directory: RunDirectory, settings: RunSettings, overrides: Sequence[str]) -> None:
    """Refuse a run over several machines, each of which must start its own processes.

    Raises:
        ConfigError: It is one; the message holds the command to start on each of them.
    """
    launch = settings.launch
    if launch.num_nodes == 1:
        return
    words = [word for word in overrides if not word.startswith(("resume=", "output_dir="))]
    # A sweep's runs get these from their allocation.
    placed = {"launch.num_nodes": launch.num_nodes, "launch.num_processes": launch.num_processes}
    words += [f"{name}={value}" for name, value in placed.items() if f"{name}={value}" not in words]
    words += [f"output_dir={settings.output_dir}", "resume=never"]
    command = shlex.join(["python", "-m", "grpo_exp.train", *words])
    raise ConfigError(
        f"launch.num_nodes={launch.num_nodes}: {directory.path} was trained on {launch.num_nodes} machines, and rerun "
        f"starts the processes of one; start `{command}` on each of them, for example with srun. That takes presets as "
        "they are now: grpo-exp compare OLD NEW shows whether they gave other settings"
    )


def read_settings(directory: RunDirectory, *, output_dir: str | None) -> RunSettings:
    """Return the settings of a run, for a new one beside it.

    Raises:
        ConfigError: The folder holds no run, or one whose settings this version does not read.
    """
    config = {**directory.read_config(), "resume": "never"}
    if output_dir is not None:
        config["output_dir"] = str(Path(output_dir).expanduser().absolute())
    try:
        return load.validate(config)
    except ConfigError as error:
        made_by = json.loads(directory.provenance.read_text()).get("packages", {}).get("grpo-exp")
        raise ConfigError(
            [f"{directory.path}: was written by version {made_by} and is not read by this one:", *error.faults]
        ) from error
