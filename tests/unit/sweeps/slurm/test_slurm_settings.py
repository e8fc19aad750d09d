"""Settings of `hydra/launcher=slurm`: what is refused, with the rule and the fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.sweeps.slurm.launcher import check
from grpo_exp.sweeps.slurm.settings import SlurmSettings, to_seconds
from hydra_plugins.grpo_exp_slurm_launcher import SlurmLauncherConf


def test_defaults_of_the_option_are_those_of_the_settings() -> None:
    values = {
        field.name: getattr(SlurmLauncherConf(), field.name)
        for field in dataclasses.fields(SlurmLauncherConf)
        if not field.name.startswith("_")
    }
    assert check(values) == SlurmSettings()
    assert values.keys() == SlurmSettings.model_fields.keys()


def test_every_setting_stands_in_the_docs() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "slurm.md").read_text()
    assert not [name for name in SlurmSettings.model_fields if f"`{name}`" not in text]


@pytest.mark.parametrize("time", ["12:00:00", "30:00", "2-00", "1-12:30", "1-00:00:00"])
def test_time_stays_the_text_that_it_was(time: str) -> None:
    assert check({"time": time}).time == time


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30:00", 1800), ("12:00:00", 43_200), ("2-00", 172_800), ("1-12:30", 131_400), ("1-00:00:01", 86_401)],
)
def test_time_is_read_as_sbatch_reads_it(time: str, seconds: int) -> None:
    assert to_seconds(time) == seconds


@pytest.mark.parametrize("option", ["--gpus=8", "--mem-per-cpu=4G", "--time-min=1:00:00", "--exclusive", "--nice"])
def test_further_options_are_handed_on(option: str) -> None:
    assert check({"sbatch_options": [option]}).sbatch_options == (option,)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("time", 43200, "43200"),  # what YAML makes of 12:00:00
        ("time", "soon", "'12:00:00'"),
        ("time", "60", "'12:00:00'"),  # minutes to sbatch, seconds or hours to others
        ("memory", "64 GB", "'64G'"),
        ("partition", "-w", "begins with '-'"),
        ("account", "a\nb", "line break"),
        ("account", 7, "quote it"),
        ("gpus_per_node", -1, "0"),
        ("nodes", 0, "1"),
        ("gpu_type", "a100", "hydra.launcher.gpus_per_node=N"),
        ("modules", ["cuda", "-x"], "begins with '-'"),
        ("setup", ["a\nb"], "line break"),
        ("environment", {"A B": "x"}, "letters, digits"),
        ("environment", {"A": "x\ny"}, "line break"),
        ("sbatch_options", ["-n4"], "--mail-type=FAIL"),
        ("sbatch_options", ["--array=0-9"], "--array belongs to the scripts"),
        ("sbatch_options", ["--nodes=4"], "use hydra.launcher.nodes"),
        ("sbatch_options", ["--arra=0-9"], "--arra is --array to sbatch"),
        ("sbatch_options", ["--no-req"], "use hydra.launcher.max_requeues=0"),
        ("sbatch_options", ["--test-only"], "use hydra.launcher.dry_run=true"),
        ("time", "00:05:00", "00:05:00 is 300 s to sbatch, and a run is asked to stop 300 s before its end"),
        ("time", "5:00", "5:00 is 300 s to sbatch"),
        ("time", "0:0", "would get nowhere"),
        ("throttle", 0, "1"),
        ("nodez", 2, "nodes"),
    ],
)
def test_wrong_value_is_refused_by_its_name(name: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check({name: value})
    (fault,) = caught.value.faults
    assert f"hydra.launcher.{name}" in fault or name in fault
    assert told in fault


def test_processes_over_nodes_are_one_per_gpu_unless_they_are_given() -> None:
    assert SlurmSettings(nodes=3).count_processes() == 3
    assert SlurmSettings(nodes=3, gpus_per_node=8).count_processes() == 24
    assert SlurmSettings(nodes=3, gpus_per_node=8, processes_per_node=2).count_processes() == 6
