"""What was asked for with `--multirun`; light, since every start of the command reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader


@dataclass(frozen=True, slots=True)
class MultirunRequest:
    """A multirun as Hydra composed it."""

    words: Sequence[str]
    """Typed words without those about Hydra itself."""
    hydra_words: Sequence[str]
    sweeper: Mapping[str, Any]
    """Plain settings of `hydra.sweeper`: `params`, and the rules of the sweep."""
    launcher: tuple[str, Mapping[str, Any]]
    """Kind, and plain settings of `hydra.launcher`."""
    folder: str
    """`hydra.sweep.dir`."""
    loader: ConfigLoader | None = None
    """Hydra's, which knows the options of groups for `glob(*)`."""


class SweepAskedFor(Exception):
    """Carries a request to where it is run: inside Hydra nothing can be composed, and no exit code gets out.

    Args:
        request: What was asked for.
    """

    def __init__(self, request: MultirunRequest) -> None:
        self.request = request
        super().__init__(request.folder)
