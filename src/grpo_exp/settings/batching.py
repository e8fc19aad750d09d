"""Batch arithmetic, solved once: prompts, completions, processes, micro-steps, generations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_exp.errors import ConfigError
from grpo_exp.settings.run import RunSettings

#: A nearest valid value further away than this is of no use to anybody.
_MAX_CANDIDATES = 10_000
#: The largest batches in papers hold some ten thousand completions; ten times that is a slip of the finger.
_MAX_GENERATED = 262_144


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How one optimizer step is cut into forward passes, and how often completions are generated.

    `completions_per_step = prompts_per_step x num_generations
    = num_processes x gradient_accumulation_steps x per_device_train_batch_size`.
    """

    prompts_per_step: int
    num_generations: int
    num_processes: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    updates_per_batch: int
    num_iterations: int

    @property
    def completions_per_step(self) -> int:
        """Completions per optimizer step, over all processes."""
        return self.prompts_per_step * self.num_generations

    @property
    def steps_per_generation(self) -> int:
        """TRL's field: micro-steps (not optimizer steps) that one generated batch is cut into."""
        return self.gradient_accumulation_steps * self.updates_per_batch

    @property
    def prompts_per_generation(self) -> int:
        """Different prompts in one generated batch; the data set needs at least as many."""
        return self.prompts_per_step * self.updates_per_batch

    @property
    def completions_per_generation(self) -> int:
        """Completions of one generated batch, over all processes."""
        return self.prompts_per_generation * self.num_generations

    @property
    def optimizer_steps_per_generation(self) -> int:
        """Optimizer steps until the next batch is generated."""
        return self.updates_per_batch * self.num_iterations

    def describe(self) -> str:
        """Return the arithmetic in one line."""
        every = self.optimizer_steps_per_generation
        return (
            f"{self.prompts_per_step} prompts x {self.num_generations} completions = "
            f"{self.completions_per_step} a step = {_count(self.num_processes, 'process', 'processes')} x "
            f"{_count(self.gradient_accumulation_steps, 'micro-step', 'micro-steps')} x "
            f"{self.per_device_train_batch_size}; "
            f"{self.prompts_per_generation * self.num_generations} completions are generated every "
            f"{_count(every, 'step', 'steps')}"
        )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


@dataclass(frozen=True, slots=True)
class ExamplePlan(BatchPlan):
    """The batch arithmetic of worked examples: a prompt has one completion, and nothing is generated."""

    def describe(self) -> str:
        """Return the arithmetic in one line."""
        return (
            f"{self.prompts_per_step} examples a step = {_count(self.num_processes, 'process', 'processes')} x "
            f"{_count(self.gradient_accumulation_steps, 'micro-step', 'micro-steps')} x "
            f"{self.per_device_train_batch_size}"
        )


def solve_batch(settings: RunSettings) -> BatchPlan:
    """Solve the batch arithmetic.

    Raises:
        ConfigError: Something does not divide, and the message names the nearest values that do; or the batch is
            larger than any machine wants.
    """
    if settings.sft is not None:
        return _solve_examples(settings)
    num_generations = settings.algorithm.num_generations
    trainer, num_processes = settings.trainer, settings.launch.num_processes
    prompts = _prompts_per_step(settings)
    completions = prompts * num_generations
    _check_generated(settings, prompts)
    if completions % num_processes:
        near = _nearest(prompts, lambda p: p * num_generations % num_processes == 0)
        key, value, factor = _given_size(settings)
        raise ConfigError(
            f"trainer.{key}={value}: {completions} completions a step do not divide by "
            f"launch.num_processes={num_processes}; use trainer.{key}={_or(n * factor for n in near)}"
        )
    per_process = completions // num_processes
    micro_batch = trainer.per_device_train_batch_size
    if micro_batch is None:
        micro_batch = _largest_divisor(per_process, settings.model.max_micro_batch)
    elif per_process % micro_batch:
        raise ConfigError(_micro_batch_fault(settings, prompts, micro_batch))
    return BatchPlan(
        prompts_per_step=prompts,
        num_generations=num_generations,
        num_processes=num_processes,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=per_process // micro_batch,
        updates_per_batch=settings.algorithm.updates_per_batch,
        num_iterations=settings.algorithm.num_iterations,
    )


def _prompts_per_step(settings: RunSettings) -> int:
    trainer, num_generations = settings.trainer, settings.algorithm.num_generations
    if trainer.prompts_per_step is not None:
        return trainer.prompts_per_step
    completions = trainer.completions_per_step or 0  # exactly one of the two is set: TrainerSettings saw to it
    if completions % num_generations:
        generations = _nearest(num_generations, lambda g: g >= 2 and completions % g == 0)
        totals = _nearest(completions, lambda c: c % num_generations == 0)
        raise ConfigError(
            f"algorithm.num_generations={num_generations}: trainer.completions_per_step={completions} does not "
            f"divide by it, and a group may not be cut; use algorithm.num_generations={_or(generations)} or "
            f"trainer.completions_per_step={_or(totals)}"
        )
    return completions // num_generations


def _given_size(settings: RunSettings) -> tuple[str, int, int]:
    """Return the setting that gives the size of a step, its value, and what one prompt counts for in it."""
    trainer = settings.trainer
    if trainer.prompts_per_step is not None:
        return "prompts_per_step", trainer.prompts_per_step, 1
    assert trainer.completions_per_step is not None  # exactly one of the two is set: TrainerSettings saw to it
    return "completions_per_step", trainer.completions_per_step, settings.algorithm.num_generations


def _solve_examples(settings: RunSettings) -> ExamplePlan:
    trainer, num_processes = settings.trainer, settings.launch.num_processes
    examples = trainer.prompts_per_step
    if examples is None:
        raise ConfigError(
            "trainer.prompts_per_step: is null, and it says how many worked examples a step takes; give it a number, "
            "and trainer.completions_per_step=null"
        )
    if examples % num_processes:
        near = _or(_nearest(examples, lambda count: count % num_processes == 0))
        raise ConfigError(
            f"trainer.prompts_per_step={examples}: does not divide over {num_processes} processes; use {near}"
        )
    share = examples // num_processes
    size = trainer.per_device_train_batch_size or _largest_divisor(share, settings.model.max_micro_batch)
    if share % size:
        raise ConfigError(
            f"trainer.per_device_train_batch_size={size}: {share} examples of a process do not divide by it; use "
            f"{_or(_nearest(size, lambda count: share % count == 0))}, or null"
        )
    return ExamplePlan(examples, 1, num_processes, size, share // size, 1, 1)


def _check_generated(settings: RunSettings, prompts: int) -> None:
    algorithm = settings.algorithm
    generated = prompts * algorithm.num_generations * algorithm.updates_per_batch
    if generated <= _MAX_GENERATED:
        return
    key, value, factor = _given_size(settings)
    most = _MAX_GENERATED // (algorithm.num_generations * algorithm.updates_per_batch)
    fix = f"use trainer.{key}={most * factor} or less" if most else "lower algorithm.updates_per_batch"
    raise ConfigError(
        f"trainer.{key}={value}: with algorithm.num_generations={algorithm.num_generations} and "
        f"algorithm.updates_per_batch={algorithm.updates_per_batch}, {generated} completions would be generated at "
        f"once, and at most {_MAX_GENERATED} are; {fix}"
    )


def _micro_batch_fault(settings: RunSettings, prompts: int, micro_batch: int) -> str:
    num_generations, num_processes = settings.algorithm.num_generations, settings.launch.num_processes
    per_process = prompts * num_generations // num_processes
    generations = _nearest(num_generations, lambda g: g >= 2 and prompts * g % (num_processes * micro_batch) == 0)
    sizes = _nearest(micro_batch, lambda b: per_process % b == 0)
    return (
        f"algorithm.num_generations={num_generations}: {prompts} prompts x {num_generations} = "
        f"{prompts * num_generations} completions a step over {num_processes} process(es) do not divide by "
        f"trainer.per_device_train_batch_size={micro_batch}; use algorithm.num_generations={_or(generations)}, "
        f"or trainer.per_device_train_batch_size={_or(sizes)} (null chooses one)"
    )


def _largest_divisor(number: int, at_most: int) -> int:
    return next(size for size in range(min(number, at_most), 0, -1) if number % size == 0)


def _nearest(value: int, valid: Callable[[int], bool]) -> list[int]:
    """Return the nearest valid value below and the nearest above `value`, as far as they exist."""
    below = next((v for v in range(value - 1, max(0, value - _MAX_CANDIDATES), -1) if valid(v)), None)
    above = next((v for v in range(value + 1, value + _MAX_CANDIDATES) if valid(v)), None)
    return [v for v in (below, above) if v is not None]


def _or(values: object) -> str:
    return " or ".join(str(value) for value in values) or "another value"  # type: ignore[attr-defined]
