"""The console that people read."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL = 140


def build_console() -> Console:
    """Return a console on standard output; without a terminal it is wide enough not to break table rows."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    # The stream of now: where a worker runs in place, sys.stdout is its log for a while.
    return Console(file=sys.stdout, width=width, highlight=False)
