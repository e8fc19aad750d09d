"""A run over several machines: who this one is, and what becomes of its process."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import devices, several_nodes
from grpo_exp.accelerate_config import Node, strategy_fault
from grpo_exp.errors import ConfigError
from grpo_exp.runner import run
from grpo_exp.settings import load
from grpo_exp.settings.launch import LaunchSettings


def launch(**values: Any) -> LaunchSettings:
    return LaunchSettings.model_validate({"kind": "accelerate", "num_nodes": 2, "num_processes": 8, **values})


def test_settings_say_which_machine_this_is_and_where_they_meet() -> None:
    settings = launch(machine_rank=1, main_process_ip="10.0.0.1", main_process_port=29500)
    assert several_nodes.find_node(settings, {"SLURM_NODEID": "0"}) == Node(1, 2, 8, "10.0.0.1", 29500)


def test_environment_says_it_where_the_settings_do_not() -> None:
    environ = {"SLURM_NODEID": "1", "MASTER_ADDR": "n1"}
    assert several_nodes.find_node(launch(main_process_port=29500), environ) == Node(1, 2, 8, "n1", 29500)


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        several_nodes.find_node(launch(), {})
    assert [fault.partition("=")[0] for fault in caught.value.faults] == [
        "launch.machine_rank", "launch.main_process_ip", "launch.main_process_port",
    ]  # fmt: skip


def test_command_becomes_the_launcher_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words go on to the processes, of which the main one composes them again."""
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 2)
    started: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    words = ["launch=multinode", "launch.num_processes=4", "launch.machine_rank=1", "launch.main_process_ip=n1",
             "launch.strategy=fsdp2", "tracker=none", "dataset.train_size=64", f"output_dir={tmp_path}"]  # fmt: skip
    several_nodes.become_launcher(load.to_settings(load.compose(words)), words)
    ((program, command, environment),) = started
    assert program == sys.executable
    config = json.loads(Path(command[command.index("--config_file") + 1]).read_text())
    assert (config["distributed_type"], config["machine_rank"], config["num_machines"]) == ("FSDP", 1, 2)
    assert command[command.index("-m", 3) :] == ["-m", "grpo_exp.train", *words]
    assert "ACCELERATE_USE_CPU" not in environment


def test_faults_are_told_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)
    monkeypatch.setattr(os, "execve", lambda *given: pytest.fail("nothing is to be started"))
    words = ["launch=multinode", "launch.machine_rank=0", "launch.main_process_ip=n1", "tracker=none",
             "trainer.prompts_per_step=3", "launch.num_processes=16", "dataset.train_size=64"]  # fmt: skip
    with pytest.raises(ConfigError, match=r"24 completions a step do not divide by launch\.num_processes=16"):
        several_nodes.become_launcher(load.to_settings(load.compose(words)), words)


def test_one_machine_alone_does_not_start_a_run_of_several() -> None:
    from rich.console import Console

    from grpo_exp.composition import RunRequest

    settings = load.to_settings(load.compose(["launch=multinode"]))
    with pytest.raises(ConfigError, match=r"use hydra/launcher=slurm hydra\.launcher\.nodes=2"):
        run(RunRequest(settings, [], ""), Console(quiet=True))


@pytest.mark.parametrize(
    ("strategy", "environ", "found"),
    [
        ("ddp", {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "fsdp2"),
        ("fsdp2", {"ACCELERATE_USE_FSDP": "true"}, "fsdp1"),
        ("zero3", {}, "ddp"),
        ("ddp", {"ACCELERATE_USE_DEEPSPEED": "true"}, "zero2 or zero3"),
    ],
)
def test_launcher_of_the_users_own_that_starts_something_else(
    strategy: str, environ: dict[str, str], found: str
) -> None:
    fault = strategy_fault(launch(strategy=strategy), environ)
    assert fault is not None
    assert fault.startswith(f"launch.strategy={strategy}: accelerate launch started the processes for {found}; use ")


def test_launcher_of_the_users_own_that_agrees() -> None:
    assert strategy_fault(launch(strategy="ddp"), {}) is None
    assert strategy_fault(launch(strategy="zero3"), {"ACCELERATE_USE_DEEPSPEED": "true"}) is None
    assert strategy_fault(launch(strategy="fsdp2"), {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}) is None
