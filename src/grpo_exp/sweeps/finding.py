"""From what a user types for a sweep to its folder."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.errors import ConfigError
from grpo_exp.settings.faults import did_you_mean
from grpo_exp.sweeps.manifest import SweepDirectory

#: Where sweeps lie with the default of `output_dir`.
_DEFAULT = Path("outputs") / "sweeps"


def find_sweep(text: str) -> SweepDirectory:
    """Return the sweep of a folder, or of a name below `outputs/sweeps`.

    Raises:
        ConfigError: There is none.
    """
    for folder in (Path(text).expanduser(), _DEFAULT / text):
        sweep = SweepDirectory(folder.resolve())
        if sweep.manifest.is_file():
            return sweep
    names = sorted(path.parent.name for path in _DEFAULT.glob("*/manifest.jsonl"))
    known = f"; sweeps in {_DEFAULT}: {', '.join(names)}" if names else ""
    raise ConfigError(
        f"{text}: is neither a folder with a manifest.jsonl nor a name below {_DEFAULT}{did_you_mean(text, names)}"
        f"{known}; give the folder that the multirun printed"
    )
