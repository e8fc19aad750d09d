"""Command lines that are built inside an allocation: vLLM's, and accelerate's on each node."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from grpo_exp.accelerate_config import Node, build_accelerate_config, build_environment, build_node_command
from grpo_exp.errors import ConfigError
from grpo_exp.ports import find_ports
from grpo_exp.serving.command import Replica, build_serve_command
from grpo_exp.settings import load
from grpo_exp.sweeps.manifest import Entry, SweepDirectory, settings_of
from grpo_exp.sweeps.slurm import wait_for_server
from grpo_exp.sweeps.slurm.allocation import place_in_allocation
from grpo_exp.sweeps.slurm.serve import build_command as build_serve
from grpo_exp.vllm_package import find_vllm


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """Return a sweep of one point that generates with a server."""
    words = ["vllm=server", "model=local", "model.path=/m/q", "seed=3"]
    values = load.to_settings(load.compose(words)).model_dump(mode="json")
    sweep = SweepDirectory(tmp_path)
    sweep.settings.write_text(json.dumps(values) + "\n")
    sweep.manifest.write_text(json.dumps(asdict(Entry(0, (), {}, "aaaaaaaa", 3, "aaaaaaaa-s3"))) + "\n")
    return sweep


def serve_words(sweep: SweepDirectory, *options: str) -> list[str]:
    ports = ["--vllm=vllm", "--port=21", "--head-address=n3", "--rpc-port=22"]
    return [str(sweep.path), "0", *ports, "--", *options]


@pytest.mark.parametrize(("rank", "size"), [("0", "1"), ("0", "2"), ("1", "2")])
def test_server_node_starts_what_grpo_exp_serve_starts(rank: str, size: str, sweep: SweepDirectory) -> None:
    """On all interfaces, by the launcher's command, with the launcher's further words behind."""
    environ = {"SLURM_PROCID": rank, "SLURM_NTASKS": size}
    found = build_serve(serve_words(sweep, "--seed=3", "--x"), environ)
    settings = settings_of(sweep.read_settings(sweep.read_entry(0)))
    replica = Replica(int(rank), int(size), "n3", 22)
    expected = build_serve_command(settings, host="0.0.0.0", port=21, package=find_vllm(), replica=replica)
    place = expected.index("serve")
    assert found == ["vllm", *expected[place:], "--seed=3", "--x"]


def test_wait_says_what_was_wrong_and_returns_one(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = find_ports(["nobody"], [])
    words = [str(sweep.path), "0", f"--url=http://127.0.0.1:{port}", "--timeout-seconds=0"]
    assert wait_for_server.main(words) == 1
    assert "hydra.launcher.server_timeout_seconds" in capsys.readouterr().err


NODE = Node(rank=1, num_nodes=3, num_processes=12, main_address="n1", main_port=23)


def test_node_starts_its_share_with_the_rank_of_its_machine() -> None:
    settings = load.to_settings(load.compose(["launch=ddp", "launch.num_processes=12", "launch.mixed_precision=bf16"]))
    command = build_node_command(settings.launch, Path("/c.json"), NODE, ["grpo_exp.joined_point", "/s", "4"])
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
