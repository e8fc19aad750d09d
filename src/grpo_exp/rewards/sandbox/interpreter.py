"""The Python that runs the programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from grpo_exp.errors import ConfigError

_ASK = "import json,sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix, sys.flags.isolated]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation.

    Args:
        executable: Its absolute path.
        folders: What must be visible for it to start, besides /usr.
    """

    executable: str
    folders: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """Return the command line of a program: no user packages, no folder of the script on the path."""
        return [self.executable, "-s", "-P", "-B"]

    @property
    def launcher_command(self) -> list[str]:
        """Return the command line of the launcher: the standard library, nothing else."""
        return [self.executable, "-I", "-S", "-B"]


def read_interpreter(python: str | None) -> Interpreter:
    """Ask an interpreter where it lives.

    Args:
        python: A path or a name in PATH; None is the one that runs this, without its virtual environment.

    Raises:
        ConfigError: It does not start.
    """
    if python is None:
        return _of_this_process()
    try:
        done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"python={python}: {error}; it runs the programs, so it must be a Python 3.11 or newer that starts here; "
            "give its path, or null for the one that runs this"
        ) from error
    executable, *prefixes, _ = json.loads(done.stdout)
    return Interpreter(executable, _folders(prefixes))


def _of_this_process() -> Interpreter:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    executable = Path(sys.base_prefix, "bin", name)
    if not executable.exists():
        raise ConfigError(
            f"python=null: {executable} does not exist, and it would be the Python without this virtual environment; "
            "give the path of a Python that runs the programs"
        )
    return Interpreter(str(executable), _folders([sys.base_prefix, str(executable.resolve().parents[1])]))


def _folders(prefixes: list[str]) -> tuple[str, ...]:
    """Return folders without those that /usr holds."""
    found = dict.fromkeys(os.path.realpath(prefix) for prefix in prefixes)
    found |= dict.fromkeys(prefixes)
    return tuple(folder for folder in found if not Path(folder).is_relative_to("/usr") and folder != "/")
