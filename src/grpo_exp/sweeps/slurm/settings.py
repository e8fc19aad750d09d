"""Settings of `hydra/launcher=slurm`: what an array job asks for, and how its runs are started."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from grpo_exp.settings.base import FilledText, Int, NoneText, Settings, text_only

_TIME = re.compile(r"(\d+-)?\d{1,4}(:\d{1,2}){1,2}|\d+-\d{1,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Options of sbatch that the scripts depend on, or that have a setting: given again they would break or hide it.
_OWN_OPTIONS = {
    "account": "hydra.launcher.account", "array": None, "chdir": None, "constraint": "hydra.launcher.constraint",
    "cpus-per-task": "hydra.launcher.cpus_per_task", "error": None, "gpus-per-node": "hydra.launcher.gpus_per_node",
    "gres": "hydra.launcher.gpus_per_node", "job-name": "hydra.launcher.job_name", "mem": "hydra.launcher.memory",
    "no-requeue": "hydra.launcher.max_requeues=0", "nodes": "hydra.launcher.nodes", "ntasks": None,
    "ntasks-per-node": None, "open-mode": None, "output": None, "parsable": None,
    "partition": "hydra.launcher.partition", "qos": "hydra.launcher.qos", "requeue": None,
    "signal": "hydra.launcher.signal_seconds", "test-only": "hydra.launcher.dry_run=true",
    "time": "hydra.launcher.time", "wait": None, "wrap": None,
}  # fmt: skip
#: Options of their own whose names are beginnings of the ones above: sbatch takes any beginning for the whole name.
_LIKE_A_BEGINNING = {"gpus"}


def single_line(value: str) -> str:
    """Refuse text with a line break or another control character: it would end a line of the script."""
    if any(not character.isprintable() for character in value):
        raise ValueError("holds a line break or a control character, and stands on one line of a script; leave it out")
    return value


def no_option(value: str) -> str:
    """Refuse text that a command would read as one of its options."""
    if value.startswith("-"):
        raise ValueError("begins with '-', so that a command would read it as an option; give the bare name")
    return value


def time_text(value: Any) -> Any:
    """Refuse a number: YAML reads 12:00:00 without quotes as 43200, which sbatch would take for minutes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(
            f"{value!r} is a number, and sbatch takes a bare number for minutes (YAML reads 12:00:00 without quotes as "
            "43200); write it as text with a colon: \"'12:00:00'\""
        )
    return value


def to_seconds(time: str) -> int:
    """Return the seconds of a time limit as sbatch reads it: `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    # Behind days the first number is the hours; without them the last one is the seconds.
    hours, minutes, seconds = [*parts, 0, 0][:3] if dash else [0, *parts][-3:]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _completed(beginning: str) -> str:
    """Return the option of the scripts that sbatch may take a name for, or the name itself."""
    return next((name for name in _OWN_OPTIONS if name.startswith(beginning)), beginning)


Line = Annotated[FilledText, AfterValidator(single_line)]
Name = Annotated[Line, AfterValidator(no_option)]
OptionalName = Annotated[Name | None, BeforeValidator(text_only), NoneText]
TimeText = Annotated[Name | None, BeforeValidator(time_text), NoneText]
OptionalCount = Annotated[Annotated[Int, Field(ge=1, le=1024)] | None, NoneText]


class SlurmSettings(Settings):
    """What sbatch is asked for, and what a task does before and after its run."""

    partition: OptionalName = None
    """Partition, or several with commas; null is the cluster's default."""
    account: OptionalName = None
    """Account that is charged; null is your default."""
    qos: OptionalName = None
    """Quality of service; null is your default."""
    constraint: OptionalName = None
    """Node features, such as `h100`."""
    time: TimeText = None
    """Limit of one start of a run: `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`; null is the partition's. A run may take
    longer: it is saved and requeued."""
    nodes: Annotated[Int, Field(ge=1, le=1024)] = 1
    """Nodes that train one run."""
    processes_per_node: OptionalCount = None
    """Worker processes on each node with more than one of them; null is one per GPU, or 1 without."""
    server_nodes: Annotated[Int, Field(ge=0, le=64)] = 0
    """Further nodes that serve one run's generation with vLLM; 0 is none."""
    gpus_per_node: Annotated[Annotated[Int, Field(ge=0, le=64)] | None, NoneText] = None
    """GPUs on each node; null asks for none."""
    gpu_type: OptionalName = None
    """Type of GPU as the cluster calls it, such as `a100`."""
    gpu_option: Literal["gpus-per-node", "gres"] = "gpus-per-node"
    """Option that asks for GPUs: older clusters know `--gres` only."""
    cpus_per_task: OptionalCount = None
    """CPUs on each node; null is the partition's default."""
    memory: OptionalName = None
    """Memory on each node, such as `64G`; `0` is all of it; null is the partition's default."""
    throttle: Annotated[Annotated[Int, Field(ge=1, le=100_000)] | None, NoneText] = None
    """Runs at the same time; null leaves it to the cluster."""
    max_requeues: Annotated[Int, Field(ge=0, le=1000)] = 20
    """Starts of one run after the first; 20 starts of 12 hours are ten days. Preemptions count, too."""
    signal_seconds: Annotated[Int, Field(ge=10, le=65_535)] = 300
    """Seconds before the end at which a run is asked to save and stop; 65,535 is sbatch's largest. It must finish its
    step and write a checkpoint within them."""
    job_name: OptionalName = None
    """Name in squeue; null is the sweep's folder."""
    modules: tuple[Name, ...] = ()
    """Environment modules to load, in this order."""
    setup: tuple[Line, ...] = ()
    """Lines of bash that run in every task after the modules. They are code: what stands in them is executed."""
    environment: dict[str, Annotated[str, BeforeValidator(text_only), AfterValidator(single_line)]] = Field(
        default_factory=dict
    )
    """Variables to export, as they are: nothing in them is expanded."""
    container: tuple[Line, ...] = ()
    """Words in front of every Python command, such as `[apptainer, exec, --nv, image.sif]`."""
    sbatch_options: tuple[Line, ...] = ()
    """Further options of sbatch, one each, such as `--exclusive`."""
    python: OptionalName = None
    """Python that has this package, on the nodes; null is the one that submits."""
    vllm: Name = "vllm"
    """vLLM's command on the server nodes."""
    vllm_options: tuple[Line, ...] = ()
    """Further words for `vllm serve`, such as `--gpu-memory-utilization=0.9`."""
    server_timeout_seconds: Annotated[Int, Field(ge=1, le=86_400)] = 1800
    """How long vLLM may take until it answers: loading and compiling a large model takes many minutes."""
    max_array_size: Annotated[Annotated[Int, Field(ge=2, le=4_000_001)] | None, NoneText] = None
    """SLURM's MaxArraySize (4,000,001 at most): more points become several jobs. Null asks scontrol; 1001, SLURM's
    default, where it is not there."""
    dry_run: bool = False
    """Write the scripts and submit nothing."""

    @field_validator("time")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None and not _TIME.fullmatch(value):
            raise ValueError(f"{value!r} is no time limit of SLURM; write hours as '12:00:00', two days as '2-00'")
        return value

    @field_validator("memory")
    @classmethod
    def _is_a_size(cls, value: str | None) -> str | None:
        if value is not None and not _MEMORY.fullmatch(value):
            raise ValueError(f"{value!r} is no size; write a whole number with K, M, G or T, such as '64G'")
        return value

    @field_validator("environment")
    @classmethod
    def _are_variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a variable; use letters, digits and underscores")
        return value

    @field_validator("sbatch_options")
    @classmethod
    def _are_further_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for option in value:
            name = option.removeprefix("--").partition("=")[0]
            if not option.startswith("--") or not name:
                raise ValueError(f"{option!r} is no long option of sbatch; write it like --mail-type=FAIL")
            meant = name if name in _OWN_OPTIONS or name in _LIKE_A_BEGINNING else _completed(name)
            if meant in _OWN_OPTIONS:
                owner = _OWN_OPTIONS[meant]
                fix = f"use {owner}" if owner else "leave it out"
                what = f"--{name}" if meant == name else f"--{name} is --{meant} to sbatch, which"
                raise ValueError(f"{what} belongs to the scripts, which depend on it; {fix}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> SlurmSettings:
        if self.gpu_type is not None and not self.gpus_per_node:
            raise ValueError(
                f"gpu_type: {self.gpu_type} and no GPU is asked for; add hydra.launcher.gpus_per_node=N, or leave it"
            )
        return self

    @model_validator(mode="after")
    def _has_time_to_run(self) -> SlurmSettings:
        if self.time is not None and to_seconds(self.time) <= self.signal_seconds:
            raise ValueError(
                f"time: {self.time} is {to_seconds(self.time)} s to sbatch, and a run is asked to stop "
                f"{self.signal_seconds} s before its end, so that it would get nowhere; give more time (hours as "
                "'12:00:00'), or lower hydra.launcher.signal_seconds"
            )
        return self

    def count_processes(self) -> int:
        """Return the worker processes of a run over several nodes."""
        return self.nodes * (self.processes_per_node or self.gpus_per_node or 1)
