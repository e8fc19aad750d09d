"""What all tests share: one thread, no hub, a cache of their own, the case files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports numpy or torch; the processes that tests start inherit it. One thread is fastest for the tiny
# models of the tests, and keeps two test runs on one machine from stalling each other.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# No test may depend on a hub, or wait for one.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep primed models in a folder of this session, or in $GRPO_EXP_TEST_CACHE, never in the user's cache."""
    given = os.environ.get("GRPO_EXP_TEST_CACHE")
    folder = Path(given).resolve() if given else tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_EXP_CACHE", str(folder))
        yield


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """Return the folder of the case files, one JSON object a line."""
    return Path(__file__).resolve().parent / "cases"
