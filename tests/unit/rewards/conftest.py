"""Fixtures of the reward tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_exp.rewards.worker_pool import PoolLimits, limit_shared_pool, shared_pool

from .reward_cases import CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets; without it the test is skipped."""
    folder = Path(os.environ.get("GRPO_EXP_SHARED_DATA", CHECKOUT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set GRPO_EXP_SHARED_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _end_checkers() -> Iterator[None]:
    """End the checker processes after the last test."""
    yield
    shared_pool().close()


@pytest.fixture(autouse=True)
def _usual_limits() -> Iterator[None]:
    """Set the limits of the checkers back where a test changed them."""
    yield
    limit_shared_pool(PoolLimits())
