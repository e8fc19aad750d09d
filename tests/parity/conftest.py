"""The policy and the trainers of the parity tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.rewards.components import RewardComponent
from parity import real_trainer

BuildTrainer = Callable[..., Any]


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random policy."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("policy")
    real_trainer.save_policy(folder)
    return folder


@pytest.fixture(scope="session")
def build_trainer(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> BuildTrainer:
    """Return `build(*overrides, components=...)`, which builds our trainer from composed settings."""

    def build(*overrides: str, components: Sequence[RewardComponent] = ()) -> Any:
        out = tmp_path_factory.mktemp("trainer")
        return real_trainer.build_trainer(policy_folder, out, *overrides, components=components)

    return build


@pytest.fixture(scope="session")
def fixed_component() -> Callable[..., RewardComponent]:
    """Return the builder of components with given values."""
    return real_trainer.fixed
