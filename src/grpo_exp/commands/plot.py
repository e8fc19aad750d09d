"""Draw the curves of a run as it stands: `grpo-exp plot RUN_FOLDER [FILE.png]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.reporting.plots import plot_curves
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.tracking.metrics_log import read_metrics


def main(words: Sequence[str]) -> int:
    """Draw `plots/curves.png` of the run, or the given file, and print its path."""
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        raise ConfigError("Usage: grpo-exp plot RUN_FOLDER [FILE.png]")
    directory = RunDirectory(Path(words[0]).resolve())
    settings = load.validate(directory.read_config())
    if not directory.metrics.exists():
        raise ConfigError(f"{directory.path}: has measured nothing yet; wait for its first step")
    target = Path(words[1]) if len(words) == 2 else directory.curves
    if target.suffix != ".png":
        raise ConfigError(f"{target}: is no .png; give a name that ends in .png")
    target.parent.mkdir(parents=True, exist_ok=True)
    result = directory.read_result()
    plot_curves(
        read_metrics(directory.metrics),
        target,
        f"{settings.name} {directory.run_id}",
        evaluation=None if result is None else result["eval"],
    )
    print(target)
    return ExitCode.COMPLETED
