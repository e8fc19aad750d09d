"""`hydra/launcher=local`, the default: a subprocess per run on this machine."""

# No `from __future__ import annotations`: Hydra runs a module before it registers it, where dataclasses look text up.
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from grpo_exp.sweeps.point_launcher import PointLauncher


@dataclass
class LocalLauncherConf:
    """Settings of `hydra.launcher`; grpo_exp.sweeps.local.settings has their types and bounds."""

    _target_: str = "hydra_plugins.grpo_exp_local_launcher.LocalLauncher"
    _convert_: str = "all"
    slots: Any = 1
    gpus_per_run: Any = None


ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalLauncherConf, provider="grpo_exp")


class LocalLauncher(PointLauncher):
    """Starts the points here."""

    @classmethod
    def kind(cls) -> str:
        """Return the name of the option and of the sweep's launcher."""
        return "local"
