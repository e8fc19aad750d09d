"""Check settings as `train` would, and start nothing: `grpo-exp check [--deep] [--signal ...] GROUP=OPTION key=value`.

Takes about a second and no GPU, so that a login node can be asked: faults, batch arithmetic, settings without effect,
the memory plan of a GPU named by launch.gpu=NAME, and advice of the literature with its sources. Exit code 2 on faults,
else 0. With --multirun or +sweeps=NAME it plans the whole sweep, with its cost once a point is done, and writes none.

  --deep            also what takes longer: prompts of the hub, tokens and chat template, gold answers through the
                    reward, room on the disk, ports, and whether the trackers answer
  --signal          also sample the policy: which share of the groups will have a learning signal, for each number of
                    samples; needs the model
  --prompts 64      prompts of the pilot, drawn by the seed
  --samples 16      samples of each
  --sizes 4,8,16    numbers of samples per prompt to predict for (default: 2,4,8,16,32)
  --pass-rates FILE where the pass rates go, as dataset.pass_rates.path reads them (default: pass_rates.jsonl, or
                    pass_rates-2.jsonl and so on where there is one)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grpo_exp.check_words import CheckWords, sort_words
from grpo_exp.composition import build_request
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.preflight import Prepared, prepare
from grpo_exp.preflight.effective import effective_lines
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.provenance import settings_hash
from grpo_exp.settings import load
from grpo_exp.settings.batching import BatchPlan
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.settings.run import RunSettings
from grpo_exp.sft_run import begun_from

#: Kinds of data sets that are read in a moment, without the network.
_QUICK_DATA = ("arithmetic", "jsonl")


def main(words: Sequence[str]) -> int:
    """Compose, check, and print what would be run and what is known about it.

    Raises:
        ConfigError: All faults that `train` would find; with --deep more of them.
    """
    asked = sort_words(words)
    if asked.is_sweep:
        return _check_sweep(asked)
    if asked.signal:
        _refuse_folder(asked.pass_rates)
    settings, console = build_request(load.compose(asked.overrides), asked.overrides).settings, build_console()
    if settings.model.prime_from == PRIME_FIRST:
        console.print(
            "note     model.prime_from=sft: fine-tuning comes first, which is not checked here", soft_wrap=True
        )
        settings = begun_from(settings, None)
    reads_data = asked.deep or asked.signal or settings.dataset.kind in _QUICK_DATA
    here = settings.launch.gpu is None  # a GPU that is named is elsewhere: this may be a login node
    prepared = prepare(settings, runs_here=here, packages_here=here, reads_data=reads_data)
    _print(settings, prepared, console, runs_here=here)
    if asked.deep:
        from grpo_exp.deep_check import deep_check

        found = deep_check(settings, prepared)
        for line in found.lines:
            console.print(f"deep     {line}", soft_wrap=True, highlight=False, markup=False)
        if found.faults:
            raise ConfigError(found.faults)
    if asked.signal:
        from grpo_exp.signal_pilot import predict, print_signal

        print_signal(predict(settings, prepared, asked, console), settings, asked, console)
    return ExitCode.COMPLETED


def _refuse_folder(file: Path) -> None:
    """Refuse a file of pass rates that could not be written, before hours of sampling."""
    why = "is a folder" if file.is_dir() else why_not_writable(file.parent)
    if why is not None:
        raise ConfigError(f"--pass-rates {file}: {why}; give a file that can be written with --pass-rates=FILE")


def _check_sweep(asked: CheckWords) -> int:
    """Plan a sweep and write nothing, as `train` does with `hydra.sweeper.dry_run=true`."""
    if asked.deep or asked.signal:
        raise ConfigError("--deep and --signal look at one run; leave out --multirun and +sweeps=...")
    switch = () if "--multirun" in asked.overrides or "-m" in asked.overrides else ("--multirun",)
    words = [*switch, *asked.overrides, "hydra.sweeper.dry_run=true"]
    return subprocess.run([sys.executable, "-m", "grpo_exp.train", *words]).returncode


def _print(settings: RunSettings, prepared: Prepared, console: Console, *, runs_here: bool) -> None:
    run_id = f"{settings_hash(settings.model_dump(mode='json'))}-s{settings.seed}"
    lines = [("run", f"{settings.output_dir}/{settings.name}/{run_id}")]
    lines += effective_lines(settings, runs_here=runs_here)
    data = f"{len(prepared.data.train)} training prompts, {len(prepared.data.evaluation)} held out"
    lines.append(("data", data if prepared.data_were_read else "not read: --deep does, which may need the network"))
    lines += [("memory", line) for line in prepared.memory]
    lines.append(("batch", prepared.plan.describe()))
    for title, text in lines:
        console.print(f"{title:<9}{text}", soft_wrap=True, highlight=False, markup=False)
    console.print(_batch_table(settings, prepared.plan))
    for title, texts in (("note", prepared.notes), ("advice", prepared.advice)):
        for text in texts:
            console.print(f"{title:<9}{text}", soft_wrap=True, highlight=False, markup=False)


def _batch_table(settings: RunSettings, plan: BatchPlan) -> Table:
    """Return how a step is put together, each number with what it is made of."""
    per_process = plan.completions_per_step // plan.num_processes
    length = settings.trainer.max_completion_length
    rows = [
        ("prompts per step", plan.prompts_per_step, "trainer.prompts_per_step"),
        ("completions per step", plan.completions_per_step, f"x {plan.num_generations} (algorithm.num_generations)"),
        ("completions per process", per_process, f"/ {plan.num_processes} (launch.num_processes)"),
        ("micro-batch", plan.per_device_train_batch_size, "trainer.per_device_train_batch_size"),
        ("micro-batches per step", plan.gradient_accumulation_steps, "completions per process / micro-batch"),
        ("completions generated at once", plan.completions_per_generation,
         f"x {plan.updates_per_batch} (algorithm.updates_per_batch)"),
        ("steps per generated batch", plan.optimizer_steps_per_generation,
         f"x {plan.num_iterations} (algorithm.num_iterations)"),
        ("completion tokens per step, at most", plan.completions_per_step * length,
         f"x {length} (trainer.max_completion_length)"),
        ("optimizer steps", settings.trainer.max_steps, "trainer.max_steps"),
        ("completions in all", plan.completions_per_step * settings.trainer.max_steps,
         "without those that dynamic sampling discards" if settings.algorithm.dynamic_sampling.enabled else ""),
    ]  # fmt: skip
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, number, made_of in rows:
        table.add_row(name, f"{number:,}", made_of)
    return table
