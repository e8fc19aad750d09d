"""Write the table of a sweep, `summary.csv`: `grpo-exp report SWEEP`.

SWEEP is the folder that the multirun printed, or its name below outputs/sweeps. One line per run, unfinished ones too:
index, point id, seed, what it has on the axes, status, steps, accuracy before and after, seconds, error. What is not
known is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.sweeps.finding import find_sweep
from grpo_exp.sweeps.operations import statuses_of
from grpo_exp.sweeps.summary import write_summary


def main(words: Sequence[str]) -> int:
    """Write the table and say where it is.

    Raises:
        ConfigError: There is no such sweep.
    """
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError("Usage: grpo-exp report SWEEP")
    sweep = find_sweep(words[0])
    statuses = statuses_of(sweep)
    write_summary(sweep, statuses)
    print(f"{sweep.summary}: {len(statuses)} runs")
    return ExitCode.COMPLETED
