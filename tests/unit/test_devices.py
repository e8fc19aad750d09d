"""GPUs are counted from the driver's files and CUDA_VISIBLE_DEVICES, as CUDA itself counts them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from grpo_exp import devices


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return `machine(gpus=4, visible="0,1")`, which makes this process believe it runs there."""

    def build(*, gpus: int = 0, nodes: int | None = None, visible: str | None = None, tool: bool = False) -> None:
        driver, dev = tmp_path / "gpus", tmp_path / "dev"
        dev.mkdir()
        (dev / "nvidiactl").touch()  # no GPU
        for number in range(gpus if nodes is None else nodes):
            (dev / f"nvidia{number}").touch()
        for number in range(gpus):
            (driver / f"0000:0{number}:00.0").mkdir(parents=True)
        monkeypatch.setattr(devices, "_DRIVER", driver)
        monkeypatch.setattr(devices, "_NODES", dev)
        monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/nvidia-smi" if tool else None)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # whatever a test sets is taken back
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return build


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("NoDevFiles", 0),  # SLURM's word for none
        ("2", 1),
        ("0,1", 2),
        (" 0, 3 ", 2),
        ("0,-1,1", 1),  # CUDA stops at the first that is none
        ("0,7,1", 1),  # there is no eighth
        ("GPU-8932f937,MIG-5c89852c", 2),
    ],
)
def test_four_gpus_of_which_some_are_visible(machine, visible: str | None, count: int) -> None:
    machine(gpus=4, visible=visible)
    assert devices.count_visible_gpus() == count
    assert devices.gpu_is_visible() == (count > 0)
    assert devices.uses_cpu("auto") == (count == 0)


def test_visible_gpus_are_named_as_cuda_names_them(machine) -> None:
    machine(gpus=4)
    assert devices.list_visible_gpus() == ["0", "1", "2", "3"]
    machine_names = {"2,3": ["2", "3"], " 0, 3 ": ["0", "3"], "0,-1,1": ["0"], "": [], "GPU-8932f937": ["GPU-8932f937"]}
    for visible, names in machine_names.items():
        os.environ["CUDA_VISIBLE_DEVICES"] = visible  # taken back by the fixture
        assert devices.list_visible_gpus() == names


def test_gpus_of_a_driver_that_lists_nothing_are_known_where_they_are_named(machine) -> None:
    machine(tool=True)
    assert devices.list_visible_gpus() is None
    os.environ["CUDA_VISIBLE_DEVICES"] = "4,5"
    assert devices.list_visible_gpus() == ["4", "5"]


def test_last_gpus_go_to_the_second_program() -> None:
    assert devices.split_gpus(["3", "5", "GPU-a"], 1) == ("3,5", "GPU-a")
    assert devices.split_gpus(["3", "5", "GPU-a"], 2) == ("3", "5,GPU-a")
    for count in (0, 3, 4):
        with pytest.raises(ValueError, match="of 3 GPUs"):
            devices.split_gpus(["3", "5", "GPU-a"], count)


def test_container_sees_its_own_device_files_only(machine) -> None:
    machine(gpus=8, nodes=2)
    assert devices.count_visible_gpus() == 2


def test_machine_without_a_driver_has_none_whatever_the_variable_says(machine) -> None:
    machine(visible="0,1")
    assert devices.count_visible_gpus() == 0
    assert devices.uses_cpu("auto")


def test_driver_that_lists_nothing_is_believed_and_not_counted(machine) -> None:
    machine(tool=True)
    assert devices.count_visible_gpus() is None
    assert devices.gpu_is_visible()
    assert not devices.uses_cpu("auto")


def test_device_that_was_named_wins(machine) -> None:
    machine(gpus=1)
    assert devices.uses_cpu("cpu")
    assert not devices.uses_cpu("cuda")
