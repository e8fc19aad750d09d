"""Where the configuration files lie, in a checkout and in an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

from grpo_exp.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def config_dir() -> Path:
    """Return the folder with `train.yaml`: the packaged one, else the checkout's.

    Raises:
        ConfigError: Neither exists.
    """
    candidates = (_PACKAGE / "conf", _CHECKOUT / "conf")
    for candidate in candidates:
        if (candidate / "train.yaml").is_file():
            return candidate
    raise ConfigError(
        f"no train.yaml in {candidates[0]} (installed) nor in {candidates[1]} (checkout); install the package again"
    )


def sweeps_parent() -> Path:
    """Return the folder whose subfolder `sweeps` holds the sweep files; it goes on Hydra's search path."""
    packaged = _PACKAGE / "conf_sweeps"
    return packaged if (packaged / "sweeps").is_dir() else _CHECKOUT


def slurm_templates_dir() -> Path:
    """Return the folder of the templates of batch scripts."""
    packaged = _PACKAGE / "slurm_templates"
    return packaged if packaged.is_dir() else _CHECKOUT / "slurm"


def cache_dir() -> Path:
    """Return where primed models are kept: `$GRPO_EXP_CACHE`, else `~/.cache/grpo_exp`."""
    given = os.environ.get("GRPO_EXP_CACHE")
    return Path(given).expanduser().resolve() if given else Path.home() / ".cache" / "grpo_exp"
