"""Fine-tuning runs, by themselves and in front of a run of GRPO that begins with their weights."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from grpo_exp import provenance
from grpo_exp.composition import RunRequest, build_request
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight import prepare
from grpo_exp.resumption import expected_run
from grpo_exp.revisions import pinned, recorded
from grpo_exp.rundir import RunDirectory
from grpo_exp.runner import run
from grpo_exp.settings import load
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.settings.run import RunSettings
from grpo_exp.signals import signals_interrupt
from grpo_exp.time_limits import BEGAN_VARIABLE

#: Starts of words that are about GRPO alone; `sft.yaml` has values of its own for these.
_NOT_OF_SFT = ("model.prime_from", "trainer", "name=", "resume=", "vllm", "health", "algorithm.", "sft")
#: What of the trainer is about both: how long the command may take, and what is saved of it.
_OF_BOTH = (
    "trainer.max_wall_minutes=", "trainer.slurm_margin_minutes=", "trainer.checkpoint.enabled=",
    "trainer.checkpoint.every_steps=", "trainer.checkpoint.keep=",
)  # fmt: skip


def build_sft_request(words: Sequence[str], command: Sequence[str]) -> RunRequest:
    """Compose `sft.yaml` with words as typed, and check the values.

    Raises:
        ConfigError: All faults at once.
    """
    return build_request(load.compose(words, primary="sft"), words, command=command)


def prime_first(words: Sequence[str], console: Console) -> tuple[int, Path]:
    """Fine-tune with the words of a run of GRPO, or find that it is done, and return exit code and run folder.

    What the words say about model, data, reward, launch, trackers, time limits and checkpoints counts; what they say
    about GRPO does not.

    Raises:
        ConfigError: All faults at once.
    """
    request = _sft_first(words)
    console.print("model.prime_from=sft: fine-tuning comes first", highlight=False, markup=False)
    return run(request, console, is_first=True), _folder_of(request.settings)


def primed_folder(words: Sequence[str]) -> Path:
    """Return the folder of the fine-tuning that comes first with the words of a run of GRPO; it need not exist.

    Raises:
        ConfigError: All faults at once.
    """
    return _folder_of(_sft_first(words).settings)


def _sft_first(words: Sequence[str]) -> RunRequest:
    own = [word for word in words if _is_of_sft(word.lstrip("+~"))]
    return build_sft_request(own, ["grpo-exp", "sft", *own])


def begun_from(settings: RunSettings, folder: Path | None) -> RunSettings:
    """Return settings whose model begins with the weights of a run, or with its own."""
    model = settings.model.model_copy(update={"prime_from": None if folder is None else str(folder)})
    return settings.model_copy(update={"model": model})


def with_primed_weights(request: RunRequest, folder: Path) -> RunRequest:
    """Return a request whose model begins with the weights of a run; a new run takes that one's commits of the hub."""
    primed = begun_from(request.settings, folder)
    text, commits = load.to_yaml(primed.model_dump(mode="json")), recorded(RunDirectory(folder))
    return RunRequest(primed, request.overrides, text, request.command, commits)


def run_primed(request: RunRequest, words: Sequence[str], console: Console) -> int:
    """Run a request, after the fine-tuning that it asks for; a fine-tuning that fails or is stopped ends both.

    Raises:
        ConfigError: All faults at once, those of GRPO before anything is fine-tuned.
    """
    if request.settings.model.prime_from != PRIME_FIRST:
        return resumable(lambda: run(request, console), console)
    return resumable(lambda: _prime_and_run(request, words, console), console)


def resumable(start: Callable[[], int], console: Console) -> int:
    """Start a run and return its exit code: 85 where a signal comes before its workers do, which heed it themselves."""
    try:
        with signals_interrupt():
            return start()
    except KeyboardInterrupt:
        text = "stopped on request while no worker was running; the same command goes on"
        console.print(text, highlight=False, markup=False)
        return int(ExitCode.RESUMABLE)


def _prime_and_run(request: RunRequest, words: Sequence[str], console: Console) -> int:
    # With the commits of both: newer data that are read here would take the place of theirs in the cache.
    planned = with_primed_weights(request, primed_folder(words))
    commits = recorded(expected_run(planned.settings)) or planned.commits
    prepare(pinned(begun_from(request.settings, None), commits))
    if request.settings.model.lora.enabled:
        raise ConfigError(
            "model.prime_from=sft: with model.lora.enabled=true fine-tuning trains an adapter, and training begins "
            "with whole weights; run grpo-exp sft by itself, write adapter and model into one folder with grpo-exp "
            "merge, and give that: model=local model.path=FOLDER"
        )
    with _one_time_limit():
        code, folder = prime_first(words, console)
        if code == ExitCode.COMPLETED:
            return run(with_primed_weights(request, folder), console)
    if code == ExitCode.RESUMABLE:
        text = "This was the fine-tuning that model.prime_from=sft asks for: the same command goes on to training"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    return code


@contextlib.contextmanager
def _one_time_limit() -> Iterator[None]:
    """Let `trainer.max_wall_minutes` count from here for all workers that are started inside."""
    os.environ[BEGAN_VARIABLE] = str(time.monotonic())
    try:
        yield
    finally:
        del os.environ[BEGAN_VARIABLE]


def _is_of_sft(word: str) -> bool:
    return word.startswith(_OF_BOTH) or not word.startswith(_NOT_OF_SFT)


def _folder_of(settings: RunSettings) -> Path:
    digest = provenance.settings_hash(settings.model_dump(mode="json"))
    return Path(settings.output_dir) / settings.name / f"{digest}-s{settings.seed}"
