"""Check settings as `train` would, and start nothing: `grpo-exp check GROUP=OPTION key=value ...`."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.composition import build_request
from grpo_exp.console import build_console
from grpo_exp.errors import ExitCode
from grpo_exp.preflight import prepare
from grpo_exp.preflight.effective import effective_lines
from grpo_exp.provenance import settings_hash
from grpo_exp.settings import load
from grpo_exp.settings.model_values import PRIME_FIRST
from grpo_exp.sft_run import begun_from


def main(words: Sequence[str]) -> int:
    """Compose, check, and print the batch arithmetic and notes.

    Raises:
        ConfigError: All faults that `train` would find.
    """
    settings, console = build_request(load.compose(words), words).settings, build_console()
    if settings.model.prime_from == PRIME_FIRST:
        console.print(
            "note     model.prime_from=sft: fine-tuning comes first, which is not checked here", soft_wrap=True
        )
        settings = begun_from(settings, None)
    prepared = prepare(settings)
    run_id = f"{settings_hash(settings.model_dump(mode='json'))}-s{settings.seed}"
    console.print(f"run      {settings.output_dir}/{settings.name}/{run_id}", soft_wrap=True)
    for title, text in effective_lines(settings):
        console.print(f"{title:<9}{text}", soft_wrap=True)
    console.print(f"batch    {prepared.plan.describe()}", soft_wrap=True)
    console.print(f"data     {len(prepared.data.train)} training prompts, {len(prepared.data.evaluation)} held out")
    for line in prepared.memory:
        console.print(f"memory   {line}", soft_wrap=True)
    for note in prepared.notes:
        console.print(f"note     {note}", soft_wrap=True)
    return ExitCode.COMPLETED
