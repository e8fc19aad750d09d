"""`hydra/sweeper=planned`, the default: all points are checked before one of them starts."""

# No `from __future__ import annotations`: Hydra runs a module before it registers it, where dataclasses look text up.
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


@dataclass
class PlannedSweeperConf:
    """Settings of `hydra.sweeper`; grpo_exp.sweeps.rules has their types and what they mean."""

    _target_: str = "hydra_plugins.grpo_exp_sweeper.PlannedSweeper"
    _convert_: str = "all"
    params: Any = field(default_factory=dict)
    hold: Any = None
    paired: Any = field(default_factory=list)
    skip_if: Any = field(default_factory=list)
    on_invalid: Any = "refuse"
    dry_run: Any = False
    instead: Any = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="planned", node=PlannedSweeperConf, provider="grpo_exp")


class PlannedSweeper(Sweeper):
    """Hands axes, rules and launcher to the planner of grpo_exp.

    Args:
        sweeper: Plain values of `hydra.sweeper`.
    """

    def __init__(self, **sweeper: Any) -> None:
        self._sweeper = sweeper
        self._launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Remember what Hydra composed, and build the launcher."""
        self.hydra_context = hydra_context
        self.config = config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Hand over what was asked for.

        Raises:
            SweepAskedFor: Always.
        """
        # Only now: every start of the command reads this module.
        from grpo_exp.sweeps.point_launcher import PointLauncher
        from grpo_exp.sweeps.request import MultirunRequest, SweepAskedFor

        assert self.config is not None
        assert self.hydra_context is not None
        launcher = self._launcher
        is_ours = isinstance(launcher, PointLauncher)
        request = MultirunRequest(
            words=arguments,
            hydra_words=list(OmegaConf.to_container(self.config.hydra.overrides.hydra)),  # pyright: ignore[reportArgumentType]
            sweeper=self._sweeper,
            launcher=(launcher.kind(), launcher.settings) if is_ours else (type(launcher).__name__, {}),
            folder=str(self.config.hydra.sweep.dir),
            loader=self.hydra_context.config_loader,
        )
        raise SweepAskedFor(request)
