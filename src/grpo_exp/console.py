"""The console that people read."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL = 140


def build_console(stream: TextIO | None = None) -> Console:
    """Return a console; without a terminal it is wide enough not to break table rows.

    Args:
        stream: Where it writes; None is standard output.
    """
    # The stream of now: where a worker runs in place, sys.stdout is its log for a while.
    out = sys.stdout if stream is None else stream
    width = None if out.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    return Console(file=out, width=width, highlight=False)
