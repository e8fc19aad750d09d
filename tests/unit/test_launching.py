"""How workers are started and ended: nothing on the machine decides but the settings, and nobody is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_exp import launching
from grpo_exp.accelerate_config import build_accelerate_config, build_environment
from grpo_exp.launching import WorkerGroup
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings.launch import LaunchSettings

#: What `accelerate config` may have written for another project.
HOSTILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3}
num_machines: 4
machine_rank: 2
main_process_ip: 10.9.9.9
num_processes: 32
mixed_precision: fp16
use_cpu: false
"""


@pytest.mark.parametrize(
    ("num_processes", "device", "kind", "use_cpu"),
    [(1, "cpu", "NO", True), (1, "cuda", "NO", False), (2, "cpu", "MULTI_GPU", False), (8, "cuda", "MULTI_GPU", False)],
)
def test_the_settings_decide_what_accelerate_starts(num_processes: int, device: str, kind: str, use_cpu: bool) -> None:
    settings = LaunchSettings.model_validate({"kind": "accelerate", "num_processes": num_processes, "device": device})
    config = build_accelerate_config(settings)
    assert (config["distributed_type"], config["num_processes"], config["use_cpu"]) == (kind, num_processes, use_cpu)


def test_variables_for_accelerate_do_not_reach_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_MIXED_PRECISION", "FSDP_SHARDING_STRATEGY"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("HF_HOME", "kept")
    settings = LaunchSettings.model_validate({"kind": "accelerate", "device": "cuda"})
    environment = build_environment(settings, os.environ, local_processes=1)
    assert not [name for name in environment if name.startswith(("ACCELERATE_", "FSDP_"))]
    assert environment["HF_HOME"] == "kept"


def test_workers_see_the_gpus_that_are_left_to_them() -> None:
    settings = LaunchSettings.model_validate({"kind": "accelerate", "device": "cuda"})
    given = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert build_environment(settings, given, local_processes=2)["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert build_environment(settings, given, local_processes=2, gpus="0,1")["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("num_processes", [1, 2])
def test_the_machines_own_accelerate_config_is_not_read(
    num_processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is started for real; its workers only say how many they are."""
    (tmp_path / "hf" / "accelerate").mkdir(parents=True)
    (tmp_path / "hf" / "accelerate" / "default_config.yaml").write_text(HOSTILE)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "worker_stub.py").write_text(
        "import os, pathlib, sys\n"
        "rank = os.environ.get('RANK', '0')\n"
        "facts = [os.environ.get(n, '-') for n in ('WORLD_SIZE', 'ACCELERATE_MIXED_PRECISION',"
        " 'ACCELERATE_USE_DEEPSPEED')]\n"
        "pathlib.Path(sys.argv[1], f'rank-{rank}').write_text(' '.join(facts))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    whole_command = launching.build_command
    monkeypatch.setattr(
        launching,
        "build_command",
        lambda *a, **k: ["worker_stub" if word == "grpo_exp.worker" else word for word in whole_command(*a, **k)],
    )
    directory = RunDirectory(tmp_path / "run")
    (directory.log_root / "attempt-1").mkdir(parents=True)
    settings = LaunchSettings.model_validate(
        {"kind": "accelerate", "num_processes": num_processes, "device": "cpu", "mixed_precision": "no"}
    )
    group = WorkerGroup(settings, directory)
    while group.poll() is None:
        time.sleep(0.1)
    assert group.poll() == 0, directory.worker_log.read_text()
    found = sorted(path.name for path in directory.path.glob("rank-*"))
    assert found == [f"rank-{rank}" for rank in range(num_processes)]
    world_size = "-" if num_processes == 1 else str(num_processes)
    assert (directory.path / "rank-0").read_text() == f"{world_size} no -"


def test_kill_waits_for_workers_that_outlive_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher ends at once; its worker ignores the polite signal and must be gone all the same."""
    monkeypatch.setattr(launching, "_KILL_AFTER_SECONDS", 1.0)
    worker = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    launcher = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {worker!r}]); time.sleep(60)"
    monkeypatch.setattr(launching, "build_command", lambda *a, **k: [sys.executable, "-c", launcher])
    directory = RunDirectory(tmp_path / "run")
    (directory.log_root / "attempt-1").mkdir(parents=True)
    group = WorkerGroup(LaunchSettings.model_validate({"kind": "accelerate", "device": "cpu"}), directory)
    deadline = time.monotonic() + 20
    while "up" not in directory.worker_log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(group._process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(children) == 1
    group.kill()
    assert not Path(f"/proc/{children[0]}").exists() or "Z" in Path(f"/proc/{children[0]}/stat").read_text()


@pytest.mark.parametrize(("number", "waits"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_workers_whose_launcher_was_asked_to_end_may_finish_their_step(
    number: signal.Signals, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends when it finds the request; after a kill nobody waits for it, and it is no stop."""
    directory = RunDirectory(tmp_path / "run")
    (directory.log_root / "attempt-1").mkdir(parents=True)
    worker = (
        "import pathlib, time; print('up', flush=True)\n"
        f"while not pathlib.Path({str(directory.stop_file)!r}).exists(): time.sleep(0.05)\n"
        f"time.sleep(0.5); pathlib.Path({str(directory.result)!r}).write_text('{{}}')"
    )
    launcher = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}]).wait()"
    monkeypatch.setattr(launching, "build_command", lambda *a, **k: [sys.executable, "-c", launcher])
    group = WorkerGroup(LaunchSettings.model_validate({"kind": "accelerate", "device": "cpu"}), directory)
    deadline = time.monotonic() + 20
    while "up" not in directory.worker_log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(group._process.pid, number)
    while group.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (directory.result.exists(), directory.stop_file.exists()) == (waits, waits)
    group.kill()
