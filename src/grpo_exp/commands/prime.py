"""Build the built-in policy now, so that the first run need not: `grpo-exp prime [model.key=value ...]`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.progress import Progress

from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.settings import load


def main(words: Sequence[str]) -> int:
    """Prime the model that these settings describe, or say that the cache has it."""
    settings = load.to_settings(load.compose(words)).model
    if settings.kind != "tiny":
        raise ConfigError(f"model={settings.kind}: only the built-in policy is primed; leave out model=...")
    from grpo_exp.models.load import quiet_libraries  # torch, only now
    from grpo_exp.models.tiny import cached_folder, load_tiny

    quiet_libraries()
    console, folder = build_console(), cached_folder(settings)
    if folder.is_dir():
        console.print(f"{folder} exists already", soft_wrap=True)
        return ExitCode.COMPLETED
    started = time.perf_counter()
    with Progress(console=console) as progress:
        task = progress.add_task("priming", total=settings.priming.steps)
        load_tiny(settings, on_step=lambda step, loss: progress.update(task, completed=step))
    console.print(f"{folder} in {time.perf_counter() - started:.0f} s", soft_wrap=True)
    return ExitCode.COMPLETED
