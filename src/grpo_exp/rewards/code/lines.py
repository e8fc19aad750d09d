"""The conversation of a process inside a sandbox: one JSON object a line, on the standard streams it was started with.

Runs inside the sandbox, so it imports the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class Lines:
    """Take over the standard streams: what the program reads is empty, and what it writes is dropped."""

    def __init__(self) -> None:
        self._requests = open(os.dup(0), encoding="utf-8", newline="\n")  # noqa: PTH123, SIM115 - open to the end
        self._replies = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def read(self) -> dict[str, Any]:
        """Return the next object; at the end of the conversation the process ends."""
        line = self._requests.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def write(self, message: dict[str, Any]) -> None:
        """Send an object."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self._replies, data) :]
