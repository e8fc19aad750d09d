"""`grpo-exp COMMAND`, the same as `python -m grpo_exp COMMAND`: lists and dispatches the commands."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

from grpo_exp import commands
from grpo_exp.errors import ConfigError, ExitCode, RunError
from grpo_exp.settings.faults import did_you_mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in {"-h", "--help"}:
        print(_usage())
        sys.exit(int(ExitCode.COMPLETED))
    name, rest = words[0], words[1:]
    if name not in _names():
        hint = did_you_mean(name, _names())
        print(f"grpo-exp {name}: there is no such command{hint}\n\n{_usage()}", file=sys.stderr)
        sys.exit(int(ExitCode.WRONG_CONFIG))
    if {"-h", "--help"} & set(rest):
        print(importlib.import_module(f"grpo_exp.commands.{name}").__doc__)
        sys.exit(int(ExitCode.COMPLETED))
    try:
        sys.exit(int(importlib.import_module(f"grpo_exp.commands.{name}").main(rest)))
    except ConfigError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        sys.exit(int(ExitCode.WRONG_CONFIG))
    except RunError as error:
        print(error, file=sys.stderr)
        sys.exit(int(ExitCode.FAILED))


def _names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def _usage() -> str:
    width = max(map(len, _names())) + 2
    lines = ["Usage: grpo-exp COMMAND ...", "", "Commands:"]
    for name in _names():
        doc = importlib.import_module(f"grpo_exp.commands.{name}").__doc__ or ""
        lines.append(f"  {name:<{width}}{doc.partition(chr(10))[0]}")
    return "\n".join([*lines, "", "To train: python -m grpo_exp.train --help"])


if __name__ == "__main__":
    main()
