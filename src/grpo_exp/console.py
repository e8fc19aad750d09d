"""The console that people read, and whether it shows tables that change in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console

from grpo_exp.errors import ConfigError

_WIDTH_WITHOUT_TERMINAL = 140
#: `live` or `plain`: how a run that goes on is shown, whatever is detected.
PROGRESS_VARIABLE = "GRPO_EXP_PROGRESS"
#: Where one of these is set, what is printed goes into a log, even if somebody has put a terminal around it.
_LOG_VARIABLES = ("SLURM_JOB_ID", "CI")


def build_console(stream: TextIO | None = None) -> Console:
    """Return a console; without a terminal it is wide enough not to break table rows.

    Args:
        stream: Where it writes; None is standard output.

    Raises:
        ConfigError: GRPO_EXP_PROGRESS is neither `live` nor `plain`.
    """
    # The stream of now: where a worker runs in place, sys.stdout is its log for a while.
    out = sys.stdout if stream is None else stream
    width = None if out.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    forced = True if _forced(os.environ) == "live" else None
    return Console(file=out, width=width, highlight=False, force_terminal=forced)


def shows_live_table(console: Console, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether a run is shown as a table that changes in place, or as lines for a log.

    Plain where GRPO_EXP_PROGRESS says so, the console is no terminal or a dumb one, or in a batch job: SLURM_JOB_ID or
    CI is set.
    """
    forced = _forced(environment)
    if forced is not None:
        return forced == "live"
    is_log = environment.get("TERM") == "dumb" or any(environment.get(name) for name in _LOG_VARIABLES)
    return console.is_terminal and not is_log


def _forced(environment: Mapping[str, str]) -> str | None:
    value = environment.get(PROGRESS_VARIABLE) or None
    if value not in {None, "live", "plain"}:
        raise ConfigError(
            f"{PROGRESS_VARIABLE}={value}: a run is shown as a live table or as plain lines; set live or plain, or "
            "unset the variable"
        )
    return value
