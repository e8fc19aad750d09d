"""What is written down about a machine, and that no secret is among it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp import machine, provenance


def test_variables_that_change_a_run_are_kept_and_others_are_not() -> None:
    kept = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4", "SLURM_JOB_ID": "17",
            "TOKENIZERS_PARALLELISM": "false", "LD_PRELOAD": "lib.so"}  # fmt: skip
    found = machine.environment({**kept, "HOME": "/nowhere", "EDITOR": "vi"})
    assert found == kept
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HF_TOKEN_PATH", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "SLURM_JWT",
     "MLFLOW_TRACKING_USERNAME", "VLLM_API_KEY", "HF_HUB_TOKEN", "GRPO_EXP_SECRET", "wandb_api_key", "HF_AUTH"],
)  # fmt: skip
def test_secrets_are_left_out_by_name(name: str) -> None:
    assert machine.environment({name: "s3cret", name.upper(): "s3cret"}) == {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pa55@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("http://host:5000/path", "http://host:5000/path"),  # a port is no password
        ("https://host/x?token=abc123&seed=1", "https://host/x?token=***&seed=1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("tracker.mlflow.tracking_uri=mysql://u:p@h/d seed=1", "tracker.mlflow.tracking_uri=mysql://u:***@h/d seed=1"),
        ("name=a:b@c", "name=a:b@c"),  # no address
    ],
)
def test_passwords_in_values_are_masked(text: str, shown: str) -> None:
    assert machine.without_secrets(text) == shown
    assert machine.environment({"MLFLOW_TRACKING_URI": text}) == {"MLFLOW_TRACKING_URI": shown}
    assert provenance.collect([text])["command"].strip("'") == shown


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    install("echo '0, NVIDIA H200, GPU-1, 143771 MiB, 570.1'; echo '1, NVIDIA H200, GPU-2, 143771 MiB, 570.1'")
    first, second = machine.nvidia_gpus()
    assert first == {"index": "0", "name": "NVIDIA H200", "uuid": "GPU-1", "memory.total": "143771 MiB",
                     "driver_version": "570.1"}  # fmt: skip
    assert second["uuid"] == "GPU-2"
    install("echo 'Failed to initialize NVML: version mismatch'; exit 18")
    assert machine.nvidia_gpus() == [{"error": "nvidia-smi: Failed to initialize NVML: version mismatch"}]
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.nvidia_gpus() == []
