"""`hydra/launcher=slurm`: an array job on a cluster."""

# No `from __future__ import annotations`: Hydra runs this module before it registers it, and dataclasses look there.
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

from grpo_exp.sweeps.point_launcher import PointLauncher


@dataclass
class SlurmLauncherConf:
    """Settings of `hydra.launcher`; grpo_exp.sweeps.slurm.settings has their types, bounds and meaning."""

    _target_: str = "hydra_plugins.grpo_exp_slurm_launcher.SlurmLauncher"
    _convert_: str = "all"
    partition: Any = None
    account: Any = None
    qos: Any = None
    constraint: Any = None
    time: Any = None
    nodes: Any = 1
    processes_per_node: Any = None
    server_nodes: Any = 0
    gpus_per_node: Any = None
    gpu_type: Any = None
    gpu_option: Any = "gpus-per-node"
    cpus_per_task: Any = None
    memory: Any = None
    throttle: Any = None
    max_requeues: Any = 20
    signal_seconds: Any = 300
    job_name: Any = None
    modules: Any = field(default_factory=list)
    setup: Any = field(default_factory=list)
    environment: Any = field(default_factory=dict)
    container: Any = field(default_factory=list)
    sbatch_options: Any = field(default_factory=list)
    python: Any = None
    vllm: Any = "vllm"
    vllm_options: Any = field(default_factory=list)
    server_timeout_seconds: Any = 1800
    max_array_size: Any = None
    dry_run: Any = False


ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=SlurmLauncherConf, provider="grpo_exp")


class SlurmLauncher(PointLauncher):
    """Submits the points and returns at once."""

    @classmethod
    def kind(cls) -> str:
        """Return the name of the option and of the sweep's launcher."""
        return "slurm"
