"""One SLURM for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from slurm.cluster import SlurmCluster, why_not_here


@pytest.fixture(scope="session")
def running_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Return a SLURM of four nodes with two pretended CPUs each."""
    why = why_not_here()
    if why is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs these tests, and {why}")
        pytest.skip(why)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), num_nodes=4, cpus_per_node=2)
    yield cluster
    cluster.close()


@pytest.fixture
def slurm(running_slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Return the SLURM, idle, as the one that this process's commands talk to."""
    monkeypatch.setenv("SLURM_CONF", running_slurm.environment["SLURM_CONF"])
    monkeypatch.setenv("PATH", running_slurm.environment["PATH"])
    yield running_slurm
    running_slurm.cancel_everything()
