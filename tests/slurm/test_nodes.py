"""Runs over several nodes and with a vLLM node of their own, on a real SLURM, with stubs for accelerate and vLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.ports import COUNT, FIRST
from slurm.cluster import SlurmCluster, read_lines
from slurm.stub_sweep import StubSweep

pytestmark = pytest.mark.slurm

SERVER = ("model=local", "model.path=/models/q", "vllm=server", "launch.device=auto")


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def nodes_of(stub: StubSweep) -> list[dict[str, Any]]:
    """Return what each node's launcher was called with, by rank."""
    return [json.loads(path.read_text()) for path in sorted(stub.sweep.path.glob("node-*.json"))]


def test_three_nodes_get_their_ranks_one_meeting_point_and_the_environment(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = ("launch=ddp", "launch.num_processes=6", "launch.device=cpu", "launch.mixed_precision=bf16")
    stub = StubSweep(tmp_path / "three nodes", 1, words=words)
    stub.behave(steps=3, seconds=0.1)
    (job,) = stub.start(nodes=3, processes_per_node=2, cpus_per_task=2)
    stub.finish(slurm, [job], seconds=90)

    assert slurm.task_states(job) == {0: "COMPLETED"}, stub.log(job, 0)
    assert stub.steps(0) == [1, 2, 3]
    nodes = nodes_of(stub)
    assert len(nodes) == 3
    names = [node["environ"]["SLURMD_NODENAME"] for node in nodes]
    assert len(set(names)) == 3
    assert names == sorted(names)  # rank 0 is the first node, where the processes meet
    assert [node["environ"]["SLURM_PROCID"] for node in nodes] == ["0", "1", "2"]
    assert [option(node["words"], "--machine_rank") for node in nodes] == ["0", "1", "2"]
    assert {option(node["words"], "--num_machines") for node in nodes} == {"3"}
    assert {option(node["words"], "--num_processes") for node in nodes} == {"6"}
    (address,) = {option(node["words"], "--main_process_ip") for node in nodes}
    assert address == slurm.address_of(names[0])
    (port,) = {int(option(node["words"], "--main_process_port")) for node in nodes}
    assert FIRST <= port < FIRST + COUNT
    assert {node["config"]["mixed_precision"] for node in nodes} == {"bf16"}
    assert {node["environ"]["ACCELERATE_USE_CPU"] for node in nodes} == {"true"}
    assert {node["environ"]["TOLD"] for node in nodes} == {"a 'b' $(c)"}  # of hydra.launcher.environment


def test_two_nodes_save_at_a_signal_and_go_on_after_the_requeue(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "two", 1, words=("launch=ddp", "launch.num_processes=2", "launch.device=cpu"))
    stub.behave(steps=12, seconds=0.25)
    (job,) = stub.start(nodes=2)
    slurm.wait_for(lambda: len(stub.steps(0)) >= 2, seconds=60, what="two steps")
    slurm.run("scancel", "--signal=USR2", "--batch", f"{job}_0")
    stub.finish(slurm, [job], seconds=90)
    assert slurm.task_states(job) == {0: "COMPLETED"}, stub.log(job, 0)
    assert slurm.restarts(job, 0) == 1
    assert stub.steps(0) == list(range(1, 13))
    assert nodes_of(stub)[0]["words"][-1] == "--wait=150"  # the second start overwrote what the first was called with


def test_node_that_fails_ends_the_other_and_its_code_is_no_request_for_more_time(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    stub = StubSweep(tmp_path / "fails", 1, words=("launch=ddp", "launch.num_processes=2", "launch.device=cpu"))
    stub.behave(steps=1000, seconds=0.1)
    (job,) = stub.start(nodes=2)
    slurm.wait_for(lambda: bool(stub.steps(0)) and len(nodes_of(stub)) == 2, seconds=60, what="both nodes at work")
    second = nodes_of(stub)[1]["environ"]["SLURMD_NODENAME"]
    slurm.kill_on(second, "accelerate.commands.launch")
    stub.finish(slurm, [job], seconds=60)
    assert slurm.task_states(job) == {0: "FAILED"}
    assert slurm.restarts(job, 0) == 0
    slurm.wait_until_clean()


@pytest.mark.parametrize("num_servers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_server_is_found_used_and_ended_with_its_trainer(slurm: SlurmCluster, tmp_path: Path, num_servers: int) -> None:
    stub = StubSweep(tmp_path / "served", 1, words=SERVER)
    stub.behave(steps=4, seconds=0.2)
    options = ("--seed=3", "--note=a 'b' $(c)")
    (job,) = stub.start(server_nodes=num_servers, vllm_options=options)
    stub.finish(slurm, [job], seconds=90)

    assert slurm.task_states(job) == {0: "COMPLETED"}, stub.log(job, 0)
    assert stub.steps(0) == [1, 2, 3, 4]
    servers = sorted(read_lines(stub.sweep.path / "servers.jsonl"), key=lambda server: "--headless" in server["words"])
    assert len(servers) == num_servers
    trainer = stub.starts(0)[0]
    assert trainer["node"] not in {server["node"] for server in servers}
    assert len({server["node"] for server in servers}) == num_servers
    words = servers[0]["words"]
    assert words[:2] == ["serve", "/models/q"]
    assert words[-2:] == list(options)
    assert {server["dev_mode"] for server in servers} == {"1"}
    # What the trainer was told is where the first server listened.
    assert trainer["environ"]["GRPO_EXP_VLLM_PORT"] == option(words, "--port")
    assert trainer["environ"]["GRPO_EXP_VLLM_HOST"] == slurm.address_of(servers[0]["node"])
    ports = {trainer["environ"][f"GRPO_EXP_VLLM_{name}"] for name in ("PORT", "GROUP_PORT")}
    assert len(ports) == 2
    if num_servers == 2:
        assert option(servers[1]["words"], "--data-parallel-start-rank") == "1"
        (meeting,) = {option(server["words"], "--data-parallel-rpc-port") for server in servers}
        assert meeting not in ports
    slurm.wait_until_clean()


def test_two_training_nodes_share_one_server_node(slurm: SlurmCluster, tmp_path: Path) -> None:
    words = (*SERVER, "launch=ddp", "launch.num_processes=2")
    stub = StubSweep(tmp_path / "shared", 1, words=words)
    stub.behave(steps=3, seconds=0.2)
    (job,) = stub.start(nodes=2, server_nodes=1)
    stub.finish(slurm, [job], seconds=90)
    assert slurm.task_states(job) == {0: "COMPLETED"}, stub.log(job, 0)
    (server,) = read_lines(stub.sweep.path / "servers.jsonl")
    trainers = [node["environ"]["SLURMD_NODENAME"] for node in nodes_of(stub)]
    assert sorted({*trainers, server["node"]}) == sorted([*trainers, server["node"]])
    assert {node["environ"]["GRPO_EXP_VLLM_PORT"] for node in nodes_of(stub)} == {option(server["words"], "--port")}


def test_server_that_dies_ends_its_trainer(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "dies", 1, words=SERVER)
    stub.behave(steps=1000, seconds=0.2, server_lives=8)
    (job,) = stub.start(server_nodes=1, max_requeues=0)
    stub.finish(slurm, [job], seconds=60)
    assert stub.starts(0)
    assert "the server has ended, so its trainer is ended too" in stub.log(job, 0)
    assert slurm.task_states(job) == {0: "FAILED"}
    slurm.wait_until_clean()


@pytest.mark.long  # a minute: it is asked twice before it is killed
def test_server_that_dies_ends_a_trainer_that_waits_for_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    stub = StubSweep(tmp_path / "deaf", 1, words=SERVER)
    stub.behave(steps=1, seconds=0.1, server_lives=8, deaf=True)
    (job,) = stub.start(server_nodes=1)
    stub.finish(slurm, [job], seconds=120)
    assert stub.starts(0)
    assert slurm.task_states(job) == {0: "FAILED"}
    assert slurm.restarts(job, 0) == 0
    slurm.wait_until_clean()


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ({"serves": "another"}, "serves another and /models/q is wanted"),
        ({"server_lives": 0}, "the server is not ready"),
    ],
)
def test_trainer_never_starts_without_the_right_server(
    slurm: SlurmCluster, tmp_path: Path, behaviour: dict[str, Any], told: str
) -> None:
    stub = StubSweep(tmp_path / "wrong", 1, words=SERVER)
    stub.behave(steps=1, seconds=0.1, **behaviour)
    (job,) = stub.start(server_nodes=1)
    stub.finish(slurm, [job], seconds=60)
    assert told in stub.log(job, 0)
    assert stub.starts(0) == []
    assert slurm.task_states(job) == {0: "FAILED"}
    slurm.wait_until_clean()
