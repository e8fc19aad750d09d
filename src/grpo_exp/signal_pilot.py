"""The pilot of `grpo-exp check --signal`: sample some prompts, predict the share of groups with a learning signal."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grpo_exp.backends.sampling.engines import build_engine
from grpo_exp.check_words import CheckWords
from grpo_exp.data.pass_rates import write_pass_rates
from grpo_exp.data.prompts import PromptRow
from grpo_exp.errors import ConfigError
from grpo_exp.evaluation.held_out import Generate, score_groups
from grpo_exp.evaluation.signal import Signal, predict_signal, predict_variance
from grpo_exp.models.load import quiet_libraries
from grpo_exp.models.tiny import cached_folder
from grpo_exp.preflight import Prepared
from grpo_exp.rewards.components import build_components
from grpo_exp.seeding import derive_seed
from grpo_exp.settings.benchmark import HeldOutBenchmark
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.run import RunSettings
from grpo_exp.statistics import wilson_interval

#: A completion of this value or more is right.
_RIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Pilot:
    """What the samples say."""

    rows: Sequence[PromptRow]
    """Prompts that could be judged."""
    num_right: Sequence[int]
    """Of each prompt the right samples."""
    num_samples: int
    verdicts: Sequence[Signal]
    """Share of groups in which `reward.primary` differs, by group size."""
    rewards: Sequence[Signal]
    """Share of groups in which the reward differs, which is 1 - `train/frac_reward_zero_std`; up to num_samples."""


def predict(settings: RunSettings, prepared: Prepared, asked: CheckWords, console: Console) -> Pilot:
    """Sample the policy before training on prompts that are drawn by the seed, and judge what it writes.

    Raises:
        ConfigError: The model cannot be loaded, or none of the prompts can be judged.
    """
    quiet_libraries()
    draws = random.Random(derive_seed(settings.seed, "pilot"))
    train = prepared.data.train
    rows = draws.sample(list(train), min(asked.num_prompts, len(train)))
    total = len(rows) * asked.num_samples
    if (
        settings.model.kind == "tiny"
        and settings.model.prime_from is None
        and not cached_folder(settings.model).is_dir()
    ):
        console.print("pilot    builds the built-in model first, once: about a minute", highlight=False)
    console.print(f"pilot    {len(rows)} prompts x {asked.num_samples} = {total} completions", highlight=False)
    generate = build_engine(_sampling(settings, asked), settings.model)
    return pilot_of(settings, rows, generate, asked)


def pilot_of(settings: RunSettings, rows: Sequence[PromptRow], generate: Generate, asked: CheckWords) -> Pilot:
    """Sample these prompts with an engine and judge them.

    Raises:
        ConfigError: None of the prompts can be judged.
    """
    number = asked.num_samples
    groups = generate([[dict(message) for message in row.prompt] for row in rows], number)
    components = build_components(settings.reward)
    scores = score_groups(rows, groups, components)
    primary = [score.value for score in scores[settings.reward.primary]]
    total = [
        sum(part.weight_at(0) * (scores[part.name][place].value or 0.0) for part in components)
        for place in range(len(primary))
    ]
    starts = range(0, len(primary), number)
    judged = [
        (row, start) for row, start in zip(rows, starts, strict=True) if None not in primary[start : start + number]
    ]
    if not judged:
        raise ConfigError(
            f"--signal: none of {len(rows)} prompts could be judged by {settings.reward.primary}; grpo-exp check "
            "--deep says whether it judges the gold answers"
        )
    right = [sum((value or 0.0) >= _RIGHT for value in primary[start : start + number]) for _, start in judged]
    return Pilot(
        rows=[row for row, _ in judged],
        num_right=right,
        num_samples=number,
        verdicts=predict_signal(right, number, asked.sizes),
        rewards=predict_variance([total[start : start + number] for _, start in judged], asked.sizes),
    )


def _sampling(settings: RunSettings, asked: CheckWords) -> EvaluationSettings:
    """Return how training samples, as settings of an engine."""
    return EvaluationSettings(
        seed=derive_seed(settings.seed, "pilot"),
        model=settings.model,
        dataset=settings.dataset,
        reward=settings.reward,
        benchmark=HeldOutBenchmark(kind="held_out", name="pilot"),
        num_samples=asked.num_samples,
        temperature=settings.algorithm.temperature,
        top_p=settings.algorithm.top_p,
        max_completion_length=settings.trainer.max_completion_length,
        batch_size=settings.model.max_micro_batch,
        device=settings.launch.device,
    )


def print_signal(pilot: Pilot, settings: RunSettings, asked: CheckWords, console: Console) -> None:
    """Print the prediction, and write the pass rates for the difficulty filter."""
    number, primary = pilot.num_samples, settings.reward.primary
    never = sum(right == 0 for right in pilot.num_right)
    always = sum(right == number for right in pilot.num_right)
    between = len(pilot.rows) - never - always
    mean = sum(pilot.num_right) / (number * len(pilot.rows))
    console.print(
        f"rates    {primary} {mean:.3f} in the mean; of {len(pilot.rows)} prompts {never} were never right, {always} "
        f"always, {between} in between and worth keeping", soft_wrap=True, highlight=False, markup=False,
    )  # fmt: skip
    table = Table(title="groups with a learning signal", title_justify="left", box=None, pad_edge=False)
    for title in ("samples per prompt", f"{primary} differs", "reward differs"):
        table.add_column(title, justify="right")
    rewards = {signal.num_generations: signal for signal in pilot.rewards}
    for signal in pilot.verdicts:
        size = signal.num_generations
        of_reward = rewards.get(size)
        table.add_row(
            f"{size}{'  <- algorithm.num_generations' if size == settings.algorithm.num_generations else ''}",
            _shown(signal, len(pilot.rows)),
            "" if of_reward is None else _shown(of_reward, len(pilot.rows)),
        )
    console.print(table)
    file = _free_name(asked.pass_rates)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_pass_rates(file, zip(pilot.rows, [right / number for right in pilot.num_right], strict=True))
    console.print(f"written  {file}; {_how_to_filter(file, between, number)}",
                  soft_wrap=True, highlight=False, markup=False)  # fmt: skip


def _shown(signal: Signal, num_prompts: int) -> str:
    """Return a share with its error; where no two prompts differ their spread says nothing, and Wilson's range stands.

    Beyond the pilot's samples not even that: prompts that were never right in 4 may be in 32.
    """
    if signal.standard_error > 0:
        return f"{signal.share:.3f} ± {2 * signal.standard_error:.3f}{' (fitted)' if signal.extrapolated else ''}"
    if signal.extrapolated:
        return f"{signal.share:.3f} (fitted, error not known)"
    found = wilson_interval(min(max(signal.share, 0.0), 1.0) * num_prompts, num_prompts)
    assert found is not None
    return f"{signal.share:.3f} ({found.low:.3f} to {found.high:.3f})"


def _free_name(path: Path) -> Path:
    """Return the path, or with -2, -3 ... where there is such a file: rates of another pilot took hours."""
    names = (path if number == 1 else path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _how_to_filter(file: Path, between: int, num_samples: int) -> str:
    """Return the words that keep the prompts in between: 0 and 1, the defaults of the bounds, leave nothing out."""
    if between == 0:
        return "no prompt is in between, so a filter by it would leave none of them"
    lowest, highest = 1 / num_samples, (num_samples - 1) / num_samples
    return (
        f"dataset.pass_rates.path={file} dataset.pass_rates.min_rate={lowest} dataset.pass_rates.max_rate={highest} "
        f"keeps the {between} in between, and prompts that were not sampled unless dataset.pass_rates.unknown=drop"
    )
