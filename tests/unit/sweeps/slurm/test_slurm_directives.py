"""Array words, and how points are shared out over array jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.slurm.directives import Chunk, build_directives, check_folder, compress, split
from grpo_exp.sweeps.slurm.settings import SlurmSettings


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([0], "0"), ([0, 1, 2, 3], "0-3"), ([0, 2, 4], "0,2,4"), ([1, 2, 5, 7, 8], "1-2,5,7-8"), ([], "")],
)
def test_numbers_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert compress(numbers) == text


def test_indices_beyond_the_largest_array_become_jobs_with_an_offset() -> None:
    # MaxArraySize 4: an index is at most 3. 9 is task 1 of the job that starts at 8.
    chunks = split([9, 0, 1, 3, 4], 4)
    assert chunks == [Chunk(0, (0, 1, 3)), Chunk(4, (4,)), Chunk(8, (9,))]
    assert [chunk.array for chunk in chunks] == ["0-1,3", "0", "1"]


def test_two_thousand_points_fit_the_default_of_slurm() -> None:
    chunks = split(range(2000), 1001)
    assert [(chunk.offset, chunk.array) for chunk in chunks] == [(0, "0-1000"), (1001, "0-998")]


def test_directives_ask_for_what_was_set() -> None:
    settings = SlurmSettings(
        partition="gpu,big", account="lab", time="12:00:00", gpus_per_node=4, gpu_type="a100", cpus_per_task=16,
        memory="200G", throttle=2, server_nodes=1, sbatch_options=("--exclusive",),
    )  # fmt: skip
    assert build_directives(settings, Path("/s/grid"), array="0-7") == [
        "--job-name=grid", "--partition=gpu,big", "--account=lab", "--time=12:00:00", "--nodes=2",
        "--ntasks-per-node=1", "--cpus-per-task=16", "--gpus-per-node=a100:4", "--mem=200G", "--array=0-7%2",
        "--output=/s/grid/slurm/logs/%A_%a.log", "--open-mode=append", "--requeue", "--signal=B:USR2@300",
        "--exclusive",
    ]  # fmt: skip


def test_older_clusters_are_asked_by_gres() -> None:
    settings = SlurmSettings(gpus_per_node=4, gpu_type="a100", gpu_option="gres")
    assert "--gres=gpu:a100:4" in build_directives(settings, Path("/s/grid"), array="0")


@pytest.mark.parametrize("name", ["a%j", "a\nb", "-x", "a\\b"])
def test_folder_that_sbatch_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.dir"):
        check_folder(Path("/s") / name)
