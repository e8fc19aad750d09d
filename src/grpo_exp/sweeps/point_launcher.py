"""The Hydra side of a launcher: it holds the settings of `hydra.launcher` and hands them to a sweep's launcher."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction

from grpo_exp.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


class PointLauncher(Launcher):
    """A launcher whose runs are points of a planned sweep, each in a process of its own.

    Args:
        settings: Plain values of `hydra.launcher`; checked when the sweep is planned.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def kind(cls) -> str:
        """Return the name of the option of `hydra/launcher`, and of the sweep's launcher."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Do nothing: a point is started from the manifest and not from this process."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Refuse what no sweep has planned.

        Raises:
            ConfigError: Always: another sweeper than ours called it.
        """
        raise ConfigError(
            f"hydra/launcher={self.kind()}: starts the points of a planned sweep, and this sweeper plans none; leave "
            "out hydra/sweeper=..."
        )
