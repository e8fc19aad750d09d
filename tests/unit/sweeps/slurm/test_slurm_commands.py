"""Command lines that are built inside an allocation: vLLM's, and accelerate's on each node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpo_exp.accelerate_config import Node, build_accelerate_config, build_environment
from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.sweeps.slurm.allocation import place_in_allocation
from grpo_exp.sweeps.slurm.node import build_command
from grpo_exp.sweeps.slurm.serve import build_serve_command

SERVE = ["--vllm=vllm", "--model=/m/q", "--port=21", "--head-address=n3", "--rpc-port=22"]
ALWAYS = ["vllm", "serve", "/m/q", "--weight-transfer-config", '{"backend":"nccl"}', "--logprobs-mode",
          "processed_logprobs", "--max-logprobs", "-1"]  # fmt: skip


def test_one_server_node_serves_the_model_to_other_nodes() -> None:
    command = build_serve_command([*SERVE, "--", "--seed=3", "--x"], {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    assert command == [*ALWAYS, "--host", "0.0.0.0", "--port", "21", "--seed=3", "--x"]


def test_further_server_nodes_are_headless_replicas() -> None:
    replicas = ["--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-address", "n3",
                "--data-parallel-rpc-port", "22"]  # fmt: skip
    first, second = (build_serve_command([*SERVE, "--"], {"SLURM_PROCID": r, "SLURM_NTASKS": "2"}) for r in "01")
    assert first == [*ALWAYS, "--host", "0.0.0.0", "--port", "21", *replicas]
    assert second == [*ALWAYS, "--headless", "--data-parallel-start-rank", "1", *replicas]


NODE = Node(rank=1, num_nodes=3, num_processes=12, main_address="n1", main_port=23)


def test_node_starts_its_share_with_the_rank_of_its_machine() -> None:
    settings = load.to_settings(load.compose(["launch=ddp", "launch.num_processes=12", "launch.mixed_precision=bf16"]))
    command = build_command(settings.launch, Path("/c.json"), NODE, ["/s", "4"])
    assert command == [
        sys.executable, "-m", "accelerate.commands.launch", "--config_file", "/c.json", "--num_machines", "3",
        "--num_processes", "12", "--machine_rank", "1", "--main_process_ip", "n1", "--main_process_port", "23",
        "--mixed_precision", "bf16", "-m", "grpo_exp.joined_point", "/s", "4",
    ]  # fmt: skip
    config = build_accelerate_config(settings.launch, node=NODE)
    assert (config["machine_rank"], config["num_machines"], config["mixed_precision"]) == (1, 3, "bf16")


def test_processes_on_a_cpu_are_told_so_and_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    settings = load.to_settings(load.compose(["launch.device=cpu"]))
    environment = build_environment(settings.launch, {"A": "b"}, local_processes=4)
    # 12 processes on 3 nodes are 4 on each, with 16 / 4 cores.
    assert (environment["OMP_NUM_THREADS"], environment["ACCELERATE_USE_CPU"], environment["A"]) == ("4", "true", "b")


SERVER = ["vllm=server", "launch.device=auto"]
EXPORTED = {"GRPO_EXP_VLLM_HOST": "n3", "GRPO_EXP_VLLM_PORT": "21000", "GRPO_EXP_VLLM_GROUP_PORT": "22000"}


def test_server_of_the_allocation_is_the_one_that_is_used() -> None:
    settings = load.to_settings(load.compose(SERVER))
    placed = place_in_allocation(settings, EXPORTED).vllm
    assert placed.mode == "server"
    assert (placed.server_host, placed.server_port, placed.group_port) == ("n3", 21000, 22000)
    assert place_in_allocation(settings, {}) == settings


def test_run_without_a_server_is_left_as_it_is() -> None:
    settings = load.to_settings(load.compose(["vllm=off"]))
    assert place_in_allocation(settings, EXPORTED) == settings


def test_names_of_ports_are_checked_like_typed_ones() -> None:
    settings = load.to_settings(load.compose(SERVER))
    with pytest.raises((ConfigError, ValueError), match="65535"):
        place_in_allocation(settings, {**EXPORTED, "GRPO_EXP_VLLM_PORT": "70000"})
