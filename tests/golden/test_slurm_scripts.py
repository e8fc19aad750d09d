"""The three batch scripts as they are rendered, and what shellcheck says of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_exp.sweeps.slurm.directives import split
from grpo_exp.sweeps.slurm.rendering import render_script, template_of
from grpo_exp.sweeps.slurm.settings import SlurmSettings

_CLUSTER = {
    "partition": "gpu",
    "account": "reasoning",
    "time": "12:00:00",
    "gpus_per_node": 4,
    "cpus_per_task": 32,
    "memory": "200G",
    "python": "python",
}
SCRIPTS = {
    "array": SlurmSettings.model_validate(
        {**_CLUSTER, "throttle": 4, "modules": ["cuda/12.8"], "setup": ["ulimit -n 65536"],
         "environment": {"HF_HOME": "/scratch/our models"}}
    ),
    "multinode": SlurmSettings.model_validate(
        {**_CLUSTER, "nodes": 3, "qos": "long", "sbatch_options": ["--exclusive"]}
    ),
    "server": SlurmSettings.model_validate(
        {**_CLUSTER, "nodes": 2, "server_nodes": 1, "container": ["apptainer", "exec", "--nv", "train image.sif"],
         "vllm_options": ["--tensor-parallel-size=4"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_rendered_script(name: str, check_golden: Callable[[str, str], None]) -> None:
    settings = SCRIPTS[name]
    assert template_of(settings) == name
    check_golden(
        f"slurm_{name}.sbatch", render_script(settings, Path("/scratch/sweeps/g_beta"), split([0, 1, 2, 5], 1001)[0])
    )


def test_rendered_scripts_pass_shellcheck() -> None:
    assert shutil.which("shellcheck"), "shellcheck is missing; on Debian: apt-get install shellcheck"
    files = [Path(__file__).parent / "data" / f"slurm_{name}.sbatch" for name in SCRIPTS]
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
