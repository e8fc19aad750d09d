"""The `#SBATCH` lines of a script, and the words of an array."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.slurm.settings import SlurmSettings, no_option, single_line


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points that fit into one array job."""

    offset: int
    """Index of a point less that of its array task."""
    indices: tuple[int, ...]
    """Indices of the points, ascending."""

    @property
    def array(self) -> str:
        """Array tasks as sbatch takes them, such as `0-3,7`."""
        return compress([index - self.offset for index in self.indices])


def compress(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ranges: 0, 1, 2, 5 is `0-2,5`."""
    runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in group] for _, group in runs]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def split(indices: Sequence[int], max_array_size: int) -> list[Chunk]:
    """Share points out over array jobs: an index of an array is below MaxArraySize, and so is their number.

    Args:
        indices: Of the points, each once.
        max_array_size: SLURM's MaxArraySize.
    """
    by_block = itertools.groupby(sorted(indices), key=lambda index: index // max_array_size)
    return [Chunk(block * max_array_size, tuple(group)) for block, group in by_block]


def check_folder(folder: Path) -> None:
    """Refuse a sweep folder that cannot stand in an `#SBATCH` line.

    Raises:
        ConfigError: It holds a control character, or one that sbatch reads as a pattern in file names.
    """
    text = str(folder)
    try:
        no_option(single_line(folder.name))
        single_line(text)
    except ValueError as error:
        raise ConfigError(f"hydra.sweep.dir={text!r}: {error}") from error
    if "%" in text or "\\" in text:
        raise ConfigError(
            f"hydra.sweep.dir={text}: sbatch reads % and \\ in file names as patterns; choose a folder without them"
        )


def build_directives(settings: SlurmSettings, folder: Path, *, array: str) -> list[str]:
    """Return the options of sbatch, quoted as its lines want them.

    Args:
        settings: Of the launcher.
        folder: The sweep, absolute.
        array: Array tasks, as sbatch takes them.
    """
    return [
        f"--{name}" if value is None else f"--{name}={shlex.quote(value)}"
        for name, value in _options(settings, folder, array)
    ] + [shlex.quote(option) for option in settings.sbatch_options]


def _options(settings: SlurmSettings, folder: Path, array: str) -> Iterator[tuple[str, str | None]]:
    given = (
        ("partition", settings.partition), ("account", settings.account), ("qos", settings.qos),
        ("constraint", settings.constraint), ("time", settings.time),
    )  # fmt: skip
    yield "job-name", settings.job_name or folder.name
    yield from ((name, value) for name, value in given if value is not None)
    yield "nodes", str(settings.nodes + settings.server_nodes)
    yield "ntasks-per-node", "1"
    if settings.cpus_per_task is not None:
        yield "cpus-per-task", str(settings.cpus_per_task)
    if settings.gpus_per_node:
        kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
        prefix = "gpu:" if settings.gpu_option == "gres" else ""
        yield settings.gpu_option, f"{prefix}{kind}{settings.gpus_per_node}"
    if settings.memory is not None:
        yield "mem", settings.memory
    yield "array", array if settings.throttle is None else f"{array}%{settings.throttle}"
    yield "output", f"{folder}/slurm/logs/%A_%a.log"
    yield "open-mode", "append"
    yield "requeue", None
    yield "signal", f"B:USR2@{settings.signal_seconds}"
